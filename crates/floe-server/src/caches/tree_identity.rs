//! Which tree on disk a cached value was made from.

use std::path::Path;

use floe_store::StoreError;
use rustix::fs::{AtFlags, CWD, statat};

/// Device, inode and time of change of the root of a tree. A path that is deleted and made again
/// has another identity, so values of the old tree are not used for the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeIdentity([i128; 4]);

impl TreeIdentity {
    /// Reads the identity of the tree at a path.
    ///
    /// Errors: the path is not there, or cannot be examined.
    pub(crate) fn read(path: &Path) -> Result<TreeIdentity, StoreError> {
        let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|source| StoreError::Io {
            action: "examine",
            path: path.into(),
            source: source.into(),
        })?;
        Ok(TreeIdentity([
            stat.st_dev.into(),
            stat.st_ino.into(),
            stat.st_ctime.into(),
            stat.st_ctime_nsec.into(),
        ]))
    }
}
