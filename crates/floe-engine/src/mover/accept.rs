//! What can be known of a path before its contents arrive: whether it is the one that was asked
//! for, and whether somebody trusted vouches for it.

use floe_format::content_address::Method;
use floe_format::{Compression, NarInfo};

use super::{Item, Mover};
use crate::error::Error;
use crate::path_spec::Root;

/// Checks what a source says of a path.
pub(super) fn accept(
    mover: &Mover<'_>,
    source: usize,
    wanted: &Root,
    narinfo: NarInfo,
) -> Result<Item, Error> {
    let offered_by = &mover.sources.list[source];
    let dir = mover.target.store_dir();
    let info = &narinfo.info;
    // A cache that has answered late was not looked at when the move began.
    if !offered_by.is_for(dir) {
        return Err(mover.other_store_dir(offered_by));
    }
    let is_wanted = match wanted {
        Root::Path(path) => *path == info.path,
        Root::HashPart(part) => part == info.path.hash_part(),
    };
    if !is_wanted {
        return Err(Error::WrongPath {
            url: format!("{}/{}.narinfo", offered_by.name(), wanted.hash_part()),
            found: info.path.clone(),
            wanted: wanted.text(),
        });
    }
    let path = || info.path.clone();
    if let Compression::Unsupported(name) = narinfo.compression {
        return Err(Error::UnsupportedCompression {
            path: path(),
            name: name.to_string(),
        });
    }
    let is_content_addressed = match (&info.ca, info.content_address_holds(dir)) {
        (Some(ca), Some(false)) => {
            let (source_name, ca) = (offered_by.name(), ca.to_string());
            return Err(Error::FalseContentAddress {
                path: path(),
                source_name,
                ca,
            });
        }
        (Some(ca), _) if ca.method == Method::Git => {
            return Err(Error::GitAddress { path: path() });
        }
        (_, holds) => holds == Some(true),
    };
    let is_vouched_for = is_content_addressed || offered_by.is_trusted;
    let needs_signature =
        mover.options.check_signatures && !mover.target.is_cache() && !is_vouched_for;
    let keys = &mover.options.trusted_keys;
    if needs_signature && !info.is_signed_by(dir, keys) {
        let signers = info.signatures.iter();
        return Err(Error::Untrusted {
            path: path(),
            source_name: offered_by.name(),
            signed_by: signers.map(|s| s.key_name().to_owned()).collect(),
            trusted: keys.names().map(str::to_owned).collect(),
        });
    }
    Ok(Item {
        narinfo,
        source,
        places: Vec::new(),
        is_left: false,
    })
}
