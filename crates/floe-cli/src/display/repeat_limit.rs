//! A limit of lines with the same cause. One narinfo can name thousands of references that do not
//! exist, and each of them is a failure of its own.

use std::collections::{BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};

use floe_transfer::{Error, Event};
use parking_lot::Mutex;

use super::stderr::is_verbose;
use super::verbosity::Verbosity;

/// Counts the failures and warnings of a copy.
#[derive(Debug, Default)]
pub(crate) struct RepeatLimit {
    counts: Mutex<HashMap<Cause, usize>>,
    /// The failures that follow from others: their number, and the first one.
    consequences: Mutex<(usize, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Failure(Discriminant<Error>),
    /// A failure of one kind of store.
    StoreFailure(&'static str),
    /// The same keys have signed the paths.
    Untrusted(BTreeSet<String>),
    DroppedSignatures,
}

impl RepeatLimit {
    /// Counts an event. Returns whether it may be shown.
    pub(crate) fn allows(&self, event: &Event<'_>) -> bool {
        let cause = match event {
            Event::Failed {
                error: error @ Error::MissingReferences { .. },
            } if !is_verbose(Verbosity::Paths) => {
                let mut consequences = self.consequences.lock();
                consequences.0 += 1;
                consequences.1.get_or_insert_with(|| error.to_string());
                return false;
            }
            Event::Failed {
                error: Error::OfKind(failure),
            } => Cause::StoreFailure(failure.cause_name()),
            Event::Failed {
                error: Error::Untrusted { signed_by, .. },
            } => Cause::Untrusted(signed_by.iter().cloned().collect()),
            Event::Failed { error } => Cause::Failure(discriminant(*error)),
            Event::DroppedSignatures { .. } => Cause::DroppedSignatures,
            _ => return true,
        };
        let mut counts = self.counts.lock();
        let max = cause.lines_max();
        let count = counts.entry(cause).or_default();
        *count += 1;
        *count <= max
    }

    /// Begins to count again.
    pub(crate) fn reset(&self) {
        self.counts.lock().clear();
        *self.consequences.lock() = (0, None);
    }

    /// Returns how many failures follow from others and were not shown. The first one is to be
    /// shown if no failure is its cause.
    pub(crate) fn consequences(&self) -> (usize, Option<String>) {
        let has_cause = self
            .counts
            .lock()
            .keys()
            .any(|cause| *cause != Cause::DroppedSignatures);
        let (count, first) = std::mem::take(&mut *self.consequences.lock());
        match first.filter(|_| !has_cause) {
            Some(first) => (count - 1, Some(first)),
            None => (count, None),
        }
    }

    /// Returns how many failures were not shown.
    pub(crate) fn hidden_failures(&self) -> usize {
        self.hidden(|cause| *cause != Cause::DroppedSignatures)
    }

    /// Returns of how many paths the loss of signatures was not shown.
    pub(crate) fn hidden_signatures(&self) -> usize {
        self.hidden(|cause| *cause == Cause::DroppedSignatures)
    }

    fn hidden(&self, is_counted: impl Fn(&Cause) -> bool) -> usize {
        let counts = self.counts.lock();
        let counts = counts.iter().filter(|(cause, _)| is_counted(cause));
        counts
            .map(|(cause, count)| count.saturating_sub(cause.lines_max()))
            .sum()
    }
}

impl Cause {
    /// How many lines with this cause a copy shows.
    fn lines_max(&self) -> usize {
        match self {
            // The lines differ only in the path, and the remedy is the same.
            Cause::Untrusted(_) if !is_verbose(Verbosity::Paths) => 1,
            _ => LINES_MAX,
        }
    }
}

/// How many lines with the same cause a copy shows: they fit on a screen, and show the pattern.
pub(crate) const LINES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use floe_cache::CacheError;

    use super::*;

    #[test]
    fn repeat_limit_counts_each_cause_by_itself() {
        let limit = RepeatLimit::default();
        let not_found = |number: usize| Error::NotFound {
            path: number.to_string(),
            sources: Vec::new(),
        };
        let failed = |error: &Error| limit.allows(&Event::Failed { error });
        let shown = (0..LINES_MAX + 5).filter(|it| failed(&not_found(*it)));
        assert_eq!(shown.count(), LINES_MAX);
        assert!(failed(&Error::NoSources));
        let nar_url = |number: usize| CacheError::NarUrl {
            source_name: String::new(),
            url: number.to_string(),
            reason: String::new(),
        };
        let shown = (0..LINES_MAX + 1).filter(|it| failed(&nar_url(*it).into()));
        assert_eq!(shown.count(), LINES_MAX);
        let not_a_cache = CacheError::NotACache {
            url: String::new(),
            reason: String::new(),
        };
        assert!(failed(&not_a_cache.into()));
        assert!(limit.allows(&Event::KeptForResume { paths: 1 }));
        let untrusted = |key: &str| Error::Untrusted {
            path: floe_format::StorePath::parse(&format!("{}-a", "0".repeat(32))).unwrap(),
            source_name: String::new(),
            signed_by: vec![key.into()],
            trusted: Vec::new(),
        };
        for key in ["one-1", "two-1"] {
            assert!(failed(&untrusted(key)));
            assert!(!failed(&untrusted(key)));
        }
        assert_eq!(limit.hidden_failures(), 8);
        assert_eq!(limit.hidden_signatures(), 0);
        let missing_references = |name: &str| Error::MissingReferences {
            path: floe_format::StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap(),
            missing: std::collections::BTreeSet::new(),
        };
        assert!(!failed(&missing_references("a")));
        assert!(!failed(&missing_references("b")));
        assert_eq!(limit.consequences(), (2, None));
        limit.reset();
        assert!(!failed(&missing_references("a")));
        let (others, first) = limit.consequences();
        assert!(others == 0 && first.unwrap().contains("-a"));
        assert!(failed(&not_found(0)));
        assert_eq!(limit.hidden_failures(), 0);
    }
}
