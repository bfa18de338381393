//! Which tree on disk something was made of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use floe_store::StoreError;
use floe_store::tree::plan::NarPlan;
use rustix::fs::{AtFlags, CWD, statat};

/// Which inode the root of a tree is, and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeIdentity([i128; 4]);

/// A plan, and of what.
#[derive(Debug)]
pub(crate) struct CachedPlan {
    pub(crate) identity: TreeIdentity,
    pub(crate) plan: Arc<NarPlan>,
    /// How many hits it was of use.
    pub(crate) hits: AtomicU32,
}

impl CachedPlan {
    pub(crate) fn new(identity: TreeIdentity, plan: NarPlan) -> CachedPlan {
        CachedPlan {
            identity,
            plan: Arc::new(plan),
            hits: AtomicU32::new(0),
        }
    }
}

/// The identity of the tree at a path; an error if it is not there.
pub(crate) fn tree_identity(path: &Path) -> Result<TreeIdentity, StoreError> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|source| StoreError::Io {
        action: "examining",
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
