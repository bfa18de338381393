//! One path of a copy's plan.

use std::path::PathBuf;

use floe_format::NarInfo;

/// A path to be copied.
#[derive(Debug)]
pub struct PlannedPath {
    /// The narinfo of the source that has the path.
    pub narinfo: NarInfo,
    /// The index of that source.
    pub source: usize,
    /// Where the path lies in other stores of this machine.
    pub local_copies: Vec<PathBuf>,
    /// Whether the target holds a tree of this path that an interrupted run left.
    pub is_recovered: bool,
}

impl PlannedPath {
    /// Whether the path is looked for on this machine before it is fetched.
    pub fn is_local(&self) -> bool {
        self.is_recovered || !self.local_copies.is_empty()
    }
}
