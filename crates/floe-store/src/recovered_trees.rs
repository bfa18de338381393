//! Sealed trees that an earlier run unpacked and did not register.
//!
//! 1. [`crash_recovery`](crate::crash_recovery) keeps the sealed trees of a dead run. It renames
//!    them to names of its own run and adds their paths to its own temporary roots.
//! 2. A copy that needs such a path takes the tree and hashes it. It fetches the path only if the
//!    hash differs.
//! 3. A copy removes trees that it does not need as soon as it knows its whole plan, and all trees
//!    after success.
//! 4. If trees remain when the writer closes, they stay on disk together with the roots file, as
//!    after a crash.
//!
//! Writers that share their temporary roots share the recovered trees. A process can therefore
//! resume a failed copy while other copies run.
//!
//! Not guaranteed: anything about the contents. A power failure may have damaged them.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;

use floe_format::StorePath;

use crate::tree::TemporaryTree;

/// Sealed trees of earlier runs, by store path. No list is empty.
pub(crate) type RecoveredTrees = Mutex<HashMap<StorePath, Vec<TemporaryTree>>>;

/// Whether a tree looks complete: the root is sealed last. A root that is a file has its final mode
/// from the start, so only its time shows whether it is complete.
pub(crate) fn is_sealed(tree: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(tree) else {
        return false;
    };
    let has_final_mode = match found.is_dir() {
        true => found.mode() & 0o7777 == 0o555,
        false => true,
    };
    has_final_mode && (found.mtime(), found.mtime_nsec()) == (1, 0)
}
