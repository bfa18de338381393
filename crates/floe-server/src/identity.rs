//! Which tree on disk something was made of.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use floe_store::StoreError;
use floe_store::tree::plan::NarPlan;
use rustix::fs::{AtFlags, CWD, statat};

/// Which inode the root of a tree is, and when it last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity([i128; 4]);

/// A plan, and of what.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) identity: Identity,
    pub(crate) plan: Arc<NarPlan>,
    /// How many times it was of use.
    pub(crate) times: AtomicU32,
}

impl Planned {
    pub(crate) fn new(identity: Identity, plan: NarPlan) -> Planned {
        Planned {
            identity,
            plan: Arc::new(plan),
            times: AtomicU32::new(0),
        }
    }
}

/// The identity of the tree at a path; an error if it is not there.
pub(crate) fn identity(path: &Path) -> Result<Identity, StoreError> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(|source| StoreError::Io {
        action: "examining",
        path: path.into(),
        source: source.into(),
    })?;
    Ok(Identity([
        stat.st_dev.into(),
        stat.st_ino.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ]))
}
