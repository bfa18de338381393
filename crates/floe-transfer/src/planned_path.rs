//! One path of a copy's plan.

use std::path::PathBuf;

use floe_format::NarInfo;

/// A path to copy.
#[derive(Debug)]
pub struct PlannedPath {
    /// The narinfo of the source that has the path.
    pub narinfo: NarInfo,
    /// The index of that source.
    pub source: usize,
    /// The places of the path in other stores of this machine.
    pub local_copies: Vec<PathBuf>,
    /// Whether the target has a recovered tree of this path, from an interrupted run.
    pub is_recovered: bool,
    /// Whether only its content address makes the path trusted. The address must then cover all of
    /// the contents.
    pub relies_on_content_address: bool,
    /// Whether a binary cache adds no signature of its own: the path replaces one with the same
    /// facts, and no source that is trusted states them.
    pub keeps_signatures: bool,
}

impl PlannedPath {
    /// Whether the copy tries to reuse the path from this machine before it fetches it.
    pub fn is_local(&self) -> bool {
        self.is_recovered || !self.local_copies.is_empty()
    }
}
