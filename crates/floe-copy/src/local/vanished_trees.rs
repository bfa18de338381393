//! Valid paths whose files are gone from the disk, for example after `rm -rf` or the repair of a
//! file system.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;

use floe_format::StorePath;
use floe_store::{StoreError, StoreLayout};
use parking_lot::Mutex;

/// The search for such paths. It looks at each valid path once.
#[derive(Debug, Default)]
pub(super) struct VanishedTrees {
    examined: Mutex<BTreeSet<StorePath>>,
}

/// Returns the references of a valid path, and `None` for other paths.
pub(super) type QueryReferences<'a> =
    dyn Fn(&StorePath) -> Result<Option<Vec<StorePath>>, StoreError> + 'a;

impl VanishedTrees {
    /// Returns the valid paths in the closures of `paths` whose files are gone.
    ///
    /// Errors: those of `references`.
    pub(super) fn find(
        &self,
        paths: &[StorePath],
        layout: &StoreLayout,
        references: &QueryReferences<'_>,
    ) -> Result<Vec<StorePath>, StoreError> {
        let mut examined = self.examined.lock();
        let mut vanished = Vec::new();
        let mut pending = paths.to_vec();
        while let Some(path) = pending.pop() {
            if examined.contains(&path) {
                continue;
            }
            let Some(references) = references(&path)? else {
                // It may become valid later.
                continue;
            };
            pending.extend(references);
            let found = fs::symlink_metadata(layout.real_path(&path));
            if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                vanished.push(path.clone());
            }
            examined.insert(path);
        }
        Ok(vanished)
    }
}
