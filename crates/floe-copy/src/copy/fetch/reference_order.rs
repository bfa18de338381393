//! The paths that wait for their references, for a target that needs references first.

use std::collections::{BTreeSet, HashMap};

use floe_format::{PathInfo, StorePath};

use super::Rank;

/// The paths that wait for their references. Paths are added after their references; in a circle,
/// which only a wrong narinfo can claim, the first path does not wait.
#[derive(Default)]
pub(super) struct ReferenceOrder {
    /// The paths that no worker has received yet, with the paths that wait for them.
    referrers: HashMap<StorePath, Vec<Rank>>,
    /// The number of references for which a path waits, if there are any.
    pending: HashMap<Rank, usize>,
    /// The paths that a worker may take.
    ready: BTreeSet<Rank>,
}

impl ReferenceOrder {
    pub(super) fn add(&mut self, rank: Rank, info: &PathInfo) {
        let mut count = 0;
        for reference in &info.references {
            if let Some(referrers) = self.referrers.get_mut(reference) {
                referrers.push(rank);
                count += 1;
            }
        }
        self.referrers.insert(info.path.clone(), Vec::new());
        match count {
            0 => drop(self.ready.insert(rank)),
            count => drop(self.pending.insert(rank, count)),
        }
    }

    /// Takes the first path that waits for nothing.
    pub(super) fn take(&mut self) -> Option<Rank> {
        self.ready.pop_first()
    }

    /// Records that the target has received a path, or never will.
    pub(super) fn release(&mut self, path: &StorePath) {
        for rank in self.referrers.remove(path).unwrap_or_default() {
            let Some(count) = self.pending.get_mut(&rank) else {
                continue;
            };
            *count -= 1;
            if *count == 0 {
                self.pending.remove(&rank);
                self.ready.insert(rank);
            }
        }
    }
}
