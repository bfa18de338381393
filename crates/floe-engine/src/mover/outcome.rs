//! What is noted of a move while it goes on, and counted at its end.

use std::collections::HashSet;

use super::Outcome;
use crate::error::{Error, ErrorKind};
use crate::report::{Event, Reporter};

impl Outcome {
    /// How many paths could not be moved: as many as have failed and, where the disk was full,
    /// those too that nobody tried any more after the one that told of it.
    pub fn unmoved(&self) -> usize {
        let is_full = |error: &Error| error.kind() == ErrorKind::NoSpace;
        if !self.failures.iter().any(is_full) {
            return self.failures.len();
        }
        let planned: HashSet<&str> = self.planned.iter().map(|plan| plan.0.as_str()).collect();
        let is_of_the_plan = |error: &Error| {
            // What the disk says names a file and no path, and is said of one that was tried.
            is_full(error) || error.path_name().is_some_and(|name| planned.contains(name))
        };
        let others = self.failures.iter().filter(|error| !is_of_the_plan(error));
        let moved = usize::try_from(self.moved).unwrap_or(usize::MAX);
        let left = planned.len().saturating_sub(moved) + others.count();
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

    use floe_format::StorePath;

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
        // Of six paths that were planned two were moved.
        let unmoved = |failures| {
            let planned = ["a", "b", "c", "d", "e", "f"];
            let outcome = Outcome {
                planned: planned.map(|name| (path(name), 1, None)).into(),
                moved: 2,
                failures,
                ..Outcome::default()
            };
            outcome.unmoved()
        };
        assert_eq!(unmoved(vec![full()]), 4);
        assert_eq!(unmoved(vec![left_out(), full()]), 4);
        assert_eq!(unmoved(vec![full(), not_found()]), 5);
        // Otherwise each has its own.
        assert_eq!(unmoved(vec![left_out(), not_found()]), 2);
        assert_eq!(unmoved(Vec::new()), 0);
    }
}
