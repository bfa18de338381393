//! The summary of a copy.

use floe_format::StorePath;
use floe_transfer::{Error, ErrorKind, Event, EventSink, Space};

/// The result of a copy.
#[derive(Debug, Default)]
pub struct CopySummary {
    /// The requested paths that are valid in the target now, in the order of the request.
    pub requested_paths: Vec<StorePath>,
    /// The plan, largest first: path, NAR size and, if the source knows it, download size, in
    /// bytes.
    pub planned: Vec<(StorePath, u64, Option<u64>)>,
    /// The space that the plan needs, and the free space before the copy.
    pub space: Option<Space>,
    /// The number of paths that the target had and that the copy met. A store has the closures of
    /// its paths, so the copy does not count them.
    pub already_valid: u64,
    /// The number of copied paths.
    pub copied: u64,
    /// The number of copied paths in a cache that have neither a signature nor a content address,
    /// so that clients refuse them.
    pub unsigned: u64,
    /// The sizes of the NAR files that a cache has got, in bytes.
    pub sent_bytes: u64,
    /// The number of paths that were there before and have got a signature.
    pub signed: u64,
    /// The number of bytes that were fetched for them.
    pub download_bytes: u64,
    /// The sum of their NAR sizes, in bytes.
    pub nar_bytes: u64,
    /// The number of copied paths that were reused from other stores of this machine or from
    /// recovered trees.
    pub reused: u64,
    /// The sum of their NAR sizes, in bytes.
    pub reused_nar_bytes: u64,
    /// The failures, causes before consequences.
    pub failures: Vec<Error>,
    /// The number of failures of paths that are not in the plan.
    pub(crate) unplanned: usize,
}

impl CopySummary {
    /// Returns the number of paths that could not be copied. If the disk was full, this includes
    /// the paths that no worker tried.
    pub fn failed_paths(&self) -> usize {
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        if !self.failures.iter().any(is_full) {
            return self.failures.len();
        }
        let copied = usize::try_from(self.copied).unwrap_or(usize::MAX);
        let not_copied = self.planned.len().saturating_sub(copied) + self.unplanned;
        not_copied.max(self.failures.len())
    }

    /// Adds the result of a later copy.
    pub fn add(&mut self, later: CopySummary) {
        let CopySummary {
            requested_paths,
            planned,
            space,
            already_valid,
            copied,
            unsigned,
            sent_bytes,
            signed,
            download_bytes,
            nar_bytes,
            reused,
            reused_nar_bytes,
            failures,
            unplanned,
        } = later;
        self.requested_paths.extend(requested_paths);
        self.planned.extend(planned);
        self.space = space;
        self.already_valid += already_valid;
        self.copied += copied;
        self.unsigned += unsigned;
        self.sent_bytes += sent_bytes;
        self.signed += signed;
        self.download_bytes += download_bytes;
        self.nar_bytes += nar_bytes;
        self.reused += reused;
        self.reused_nar_bytes += reused_nar_bytes;
        self.failures.extend(failures);
        self.unplanned += unplanned;
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
        // The error names the server.
        let broken = || Error::fetch("http://c/nar/d", "it broke off", true);
        // Two of six planned paths were copied.
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
        // Otherwise each failed path has its own failure.
        assert_eq!(failed_paths(1, vec![not_found(), left_out()]), 2);
        assert_eq!(failed_paths(0, Vec::new()), 0);
    }
}
