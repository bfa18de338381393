//! The trust check: is a narinfo for the requested path, and is there a trusted signature or a
//! content address? It happens before the download; the contents are verified on arrival.

use floe_format::content_address::ContentAddressMethod;
use floe_format::{Compression, NarInfo, PathInfo, StoreDir};
use floe_transfer::{Error, Event, PathSpec, PlannedPath, Source};

use super::ClosureCopy;

/// Checks a narinfo. Returns the planned path.
pub(super) fn check_trust(
    copy: &ClosureCopy<'_>,
    source: usize,
    wanted: &PathSpec,
    mut narinfo: NarInfo,
) -> Result<PlannedPath, Error> {
    let offering_source = &*copy.sources.list[source];
    let dir = copy.target.store_dir();
    let info = &narinfo.info;
    // The store directory of a cache that opened late was not checked at the start.
    if !offering_source.is_for(dir) {
        return Err(copy.store_dir_mismatch(offering_source));
    }
    if !wanted.matches(&info.path) {
        return Err(Error::WrongPath {
            source_name: offering_source.name(),
            url: format!("{}/{}.narinfo", offering_source.name(), wanted.hash_part()),
            found: info.path.clone(),
            wanted: wanted.text(),
        });
    }
    if let Compression::Unsupported(name) = &narinfo.compression {
        return Err(Error::Unsupported {
            path: info.path.clone(),
            feature: format!("the compression {name}"),
        });
    }
    let locked = copy.options.nar_hashes.get(&info.path);
    if let Some(locked) = locked.filter(|locked| **locked != info.nar_hash) {
        return Err(Error::Mismatch {
            path: info.path.clone(),
            url: offering_source.name(),
            what: "NAR hash",
            expected: format!("{}, which the lock file has", locked.to_sri()),
            actual: info.nar_hash.to_sri(),
        });
    }
    let is_content_addressed = check_content_address(info, dir, offering_source)?;
    let needs_no_trust = !copy.options.check_signatures
        || !copy.target.facts().requires_trust
        || copy.options.obey_trusted && offering_source.facts().is_trusted;
    let keys = &copy.options.trusted_keys;
    let is_unsigned = !needs_no_trust && !info.is_signed_by(dir, keys);
    if is_unsigned && !is_content_addressed {
        let signers = info.signatures.iter();
        return Err(Error::Untrusted {
            path: info.path.clone(),
            source_name: offering_source.name(),
            signed_by: signers.map(|s| s.key_name().to_owned()).collect(),
            trusted: keys.names().map(str::to_owned).collect(),
        });
    }
    let count = narinfo.info.drop_junk_signatures(dir, keys);
    if count > 0 {
        let path = &narinfo.info.path;
        copy.events.event(Event::DroppedSignatures { path, count });
    }
    Ok(PlannedPath {
        narinfo,
        source,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address: is_unsigned,
    })
}

/// Returns whether the path has a content address that makes its signature unnecessary.
///
/// Errors: the address does not match the path; floe cannot verify an address of this method.
fn check_content_address(
    info: &PathInfo,
    dir: &StoreDir,
    source: &dyn Source,
) -> Result<bool, Error> {
    match (&info.ca, info.matches_content_address(dir)) {
        (Some(ca), Some(false)) => Err(Error::ContentAddressMismatch {
            path: info.path.clone(),
            source_name: source.name(),
            ca: ca.to_string(),
        }),
        (Some(ca), _) if ca.method == ContentAddressMethod::Git => Err(Error::Unsupported {
            path: info.path.clone(),
            feature: "content addresses of the method `git`".to_owned(),
        }),
        (_, holds) => Ok(holds == Some(true)),
    }
}
