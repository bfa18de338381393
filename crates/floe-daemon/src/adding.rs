//! Files of this machine that a user adds to a store, as `nix-store --add-fixed` does.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use floe_format::content_address::ContentAddressMethod;
use floe_format::{HashAlgorithm, PathInfo};
use floe_store::open_regular_file;
use floe_store::tree::{CHUNK_LEN, dump_path};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::receive::Receiver;

/// Adds a file or tree under its own name. The store path follows from name, contents and kind of
/// content address.
///
/// Errors: [`HostError::Unreadable`], [`HostError::Forbidden`], and those of the store.
pub fn add(
    store: &HostedStore,
    kind: (ContentAddressMethod, HashAlgorithm),
    source: &Path,
) -> Result<PathInfo, HostError> {
    let forbidden = |reason: &str| HostError::Forbidden {
        action: format!("add {}", source.display()),
        reason: reason.to_owned(),
    };
    let name = source.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| forbidden("it has no name that a store path may have"))?;
    let is_flat = kind.0 != ContentAddressMethod::NixArchive;
    let unreadable = |error| HostError::Unreadable {
        path: source.to_path_buf(),
        source: error,
    };
    let found = fs::symlink_metadata(source).map_err(unreadable)?;
    if is_flat && !found.is_file() {
        return Err(forbidden("it is not a regular file; try --recursive"));
    }
    let mut receiver = Receiver::new(store)?;
    let info = receiver.add(name, kind, BTreeSet::new(), &mut |write| {
        if is_flat {
            read_file(source, write, &unreadable)
        } else {
            dump_path(source, write)
        }
    })?;
    receiver.commit()?;
    Ok(info)
}

fn read_file(
    source: &Path,
    write: &mut dyn FnMut(&[u8]) -> Result<(), HostError>,
    unreadable: &dyn Fn(io::Error) -> HostError,
) -> Result<(), HostError> {
    let mut file = open_regular_file(source).map_err(unreadable)?;
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(len) => write(&chunk[..len])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}
