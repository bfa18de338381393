//! What is noted of a move while it goes on, and counted at its end.

use floe_format::StorePath;

use super::Space;
use crate::error::{Error, ErrorKind};
use crate::report::{Event, Reporter};

/// What a move has done.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The roots that are valid in the target now, in the order in which they were asked for.
    pub roots: Vec<StorePath>,
    /// The paths that were to be moved, largest first: path, NAR size and, where the source
    /// says so, the size of what is fetched, in bytes.
    pub planned: Vec<(StorePath, u64, Option<u64>)>,
    /// What was to be written for them, and what was free before.
    pub space: Option<Space>,
    /// How many paths were moved.
    pub moved: u64,
    /// How many bytes were fetched for them.
    pub download_bytes: u64,
    /// How many bytes their NARs have.
    pub nar_bytes: u64,
    /// How many of them were taken from other stores of this machine, or from what a run had left
    /// that ended early, and not fetched.
    pub taken: u64,
    /// How many bytes the NARs of those have.
    pub taken_nar_bytes: u64,
    /// What failed, causes before consequences.
    pub failures: Vec<Error>,
    /// How many of these are of paths that could not even be planned.
    pub(crate) unplanned: usize,
}

impl Outcome {
    /// How many paths could not be moved: as many as have failed and, where the disk was full,
    /// those too that nobody tried any more after the one that told of it.
    pub fn unmoved(&self) -> usize {
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        if !self.failures.iter().any(is_full) {
            return self.failures.len();
        }
        let moved = usize::try_from(self.moved).unwrap_or(usize::MAX);
        let left = self.planned.len().saturating_sub(moved) + self.unplanned;
        left.max(self.failures.len())
    }

    pub(crate) fn fail(&mut self, reporter: &dyn Reporter, error: Error) {
        reporter.event(Event::Failed { error: &error });
        self.failures.push(error);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io;

    use super::*;

    fn path(name: &str) -> StorePath {
        StorePath::parse(&format!("00000000000000000000000000000000-{name}")).unwrap()
    }

    #[test]
    fn after_a_full_disk_what_nobody_tried_counts_as_not_moved() {
        let full = || Error::File {
            action: "writing",
            path: "/file".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        let left_out = || Error::MissingReferences {
            path: path("b"),
            missing: BTreeSet::new(),
        };
        let not_found = || Error::NotFound {
            path: path("elsewhere").to_string(),
            sources: Vec::new(),
        };
        // The server is the one that is named.
        let broken = || Error::fetch("http://c/nar/d", "it broke off", true);
        // Of six paths that were planned two were moved.
        let unmoved = |unplanned, failures| {
            let planned = ["a", "b", "c", "d", "e", "f"];
            let outcome = Outcome {
                planned: planned.map(|name| (path(name), 1, None)).into(),
                moved: 2,
                failures,
                unplanned,
                ..Outcome::default()
            };
            outcome.unmoved()
        };
        assert_eq!(unmoved(0, vec![full()]), 4);
        assert_eq!(unmoved(0, vec![left_out(), full()]), 4);
        assert_eq!(unmoved(0, vec![broken(), full()]), 4);
        assert_eq!(unmoved(1, vec![not_found(), full()]), 5);
        // Otherwise each has its own.
        assert_eq!(unmoved(1, vec![not_found(), left_out()]), 2);
        assert_eq!(unmoved(0, Vec::new()), 0);
    }
}
