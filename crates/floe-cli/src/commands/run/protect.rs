//! Finds the paths of a program, and protects them from collections while it runs.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::bail;
use floe_format::StorePath;
use floe_store::{LockWait, ProgramRoot, StoreError, StoreLayout, StoreReader};
use floe_transfer::PathSpec;

use crate::display::warn;

/// The temporary root of a program, if this user may write to the store.
#[derive(Debug)]
pub(super) struct Protected(Option<ProgramRoot>);

impl Protected {
    /// Lets the program inherit the locked file of the root.
    pub(super) fn inherit(self) -> io::Result<Option<OwnedFd>> {
        self.0.map(ProgramRoot::into_inherited).transpose()
    }
}

/// Protects paths. Returns `None` if one of them is not valid.
///
/// Errors: those of the database and of the system.
pub(super) fn protect(
    layout: &StoreLayout,
    specs: &[PathSpec],
    lock_wait: &LockWait,
) -> anyhow::Result<Option<(Vec<StorePath>, Protected)>> {
    let store = match StoreReader::open_with(layout.clone(), lock_wait.clone()) {
        Err(StoreError::NoStore { .. }) => return Ok(None),
        store => store?,
    };
    let Some(paths) = find(&store, specs)? else {
        return Ok(None);
    };
    let root = match ProgramRoot::create(layout, &paths, lock_wait) {
        Ok(root) => Some(root),
        Err(error) if error.may_not_write() || error.has_no_locks() => {
            // In its own place, a collector sees that the program uses the path.
            if layout.place_elsewhere().is_some() {
                warn(format_args!(
                    "the program's paths are not protected from a collection while it runs: {error}"
                ));
            }
            None
        }
        Err(error) => return Err(error.into()),
    };
    // A collection may have deleted them before the root existed.
    let found = find(&store, specs)?;
    Ok(found.map(|paths| (paths, Protected(root))))
}

fn find(store: &StoreReader, specs: &[PathSpec]) -> anyhow::Result<Option<Vec<StorePath>>> {
    let mut paths = Vec::new();
    for spec in specs {
        let found = store.query_path_from_hash_part(spec.hash_part())?;
        let Some(path) = found else {
            return Ok(None);
        };
        if !spec.matches(&path) {
            bail!(
                "cannot run {}: the store has this hash part under the name {}",
                spec.text(),
                path.name()
            );
        }
        paths.push(path);
    }
    Ok(Some(paths))
}
