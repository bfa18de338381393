//! What is noted of a move while it goes on, and counted at its end.

use floe_format::StorePath;
use floe_transfer::{Error, ErrorKind, Event, EventSink, Space};

/// What a move has done.
#[derive(Debug, Default)]
pub struct CopySummary {
    /// The roots that are valid in the target now, in the order in which they were asked for.
    pub requested_paths: Vec<StorePath>,
    /// The paths that were to be moved, largest first: path, NAR size and, where the source
    /// says so, the size of what is fetched, in bytes.
    pub planned: Vec<(StorePath, u64, Option<u64>)>,
    /// What was to be written for them, and what was free before.
    pub space: Option<Space>,
    /// How many paths were moved.
    pub copied: u64,
    /// How many bytes were fetched for them.
    pub download_bytes: u64,
    /// How many bytes their NARs have.
    pub nar_bytes: u64,
    /// How many of them were taken from other stores of this machine, or from what a run had left
    /// that ended early, and not fetched.
    pub reused: u64,
    /// How many bytes the NARs of those have.
    pub reused_nar_bytes: u64,
    /// What failed, causes before consequences.
    pub failures: Vec<Error>,
    /// How many of these are of paths that could not even be planned.
    pub(crate) unplanned: usize,
}

impl CopySummary {
    /// How many paths could not be moved: as many as have failed and, where the disk was full,
    /// those too that nobody tried any more after the one that told of it.
    pub fn failed_paths(&self) -> usize {
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        if !self.failures.iter().any(is_full) {
            return self.failures.len();
        }
        let copied = usize::try_from(self.copied).unwrap_or(usize::MAX);
        let not_copied = self.planned.len().saturating_sub(copied) + self.unplanned;
        not_copied.max(self.failures.len())
    }

    pub(crate) fn fail(&mut self, events: &dyn EventSink, error: Error) {
        events.event(Event::Failed { error: &error });
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
    fn failed_paths_after_full_disk_counts_untried_paths() {
        let full = || Error::File {
            action: "write",
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
        let failed_paths = |unplanned, failures| {
            let planned = ["a", "b", "c", "d", "e", "f"];
            let summary = CopySummary {
                planned: planned.map(|name| (path(name), 1, None)).into(),
                copied: 2,
                failures,
                unplanned,
                ..CopySummary::default()
            };
            summary.failed_paths()
        };
        assert_eq!(failed_paths(0, vec![full()]), 4);
        assert_eq!(failed_paths(0, vec![left_out(), full()]), 4);
        assert_eq!(failed_paths(0, vec![broken(), full()]), 4);
        assert_eq!(failed_paths(1, vec![not_found(), full()]), 5);
        // Otherwise each has its own.
        assert_eq!(failed_paths(1, vec![not_found(), left_out()]), 2);
        assert_eq!(failed_paths(0, Vec::new()), 0);
    }
}
