//! A limit of lines with the same cause. One narinfo can name thousands of references that do not
//! exist, and each of them is a failure of its own.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use floe_transfer::{Error, Event};
use parking_lot::Mutex;

/// Counts the failures and warnings of a copy.
#[derive(Debug, Default)]
pub(crate) struct RepeatLimit(Mutex<HashMap<Cause, usize>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Failure(Discriminant<Error>),
    /// A failure of one kind of store.
    StoreFailure(&'static str),
    DroppedSignatures,
}

impl RepeatLimit {
    /// Counts an event. Returns whether it may be shown.
    pub(crate) fn allows(&self, event: &Event<'_>) -> bool {
        let cause = match event {
            Event::Failed {
                error: Error::OfKind(failure),
            } => Cause::StoreFailure(failure.cause_name()),
            Event::Failed { error } => Cause::Failure(discriminant(*error)),
            Event::DroppedSignatures { .. } => Cause::DroppedSignatures,
            _ => return true,
        };
        let mut counts = self.0.lock();
        let count = counts.entry(cause).or_default();
        *count += 1;
        *count <= LINES_MAX
    }

    /// Begins to count again.
    pub(crate) fn reset(&self) {
        self.0.lock().clear();
    }

    /// Returns how many failures were not shown.
    pub(crate) fn hidden_failures(&self) -> usize {
        self.hidden(|cause| cause != Cause::DroppedSignatures)
    }

    /// Returns of how many paths the loss of signatures was not shown.
    pub(crate) fn hidden_signatures(&self) -> usize {
        self.hidden(|cause| cause == Cause::DroppedSignatures)
    }

    fn hidden(&self, is_counted: impl Fn(Cause) -> bool) -> usize {
        let counts = self.0.lock();
        let counts = counts.iter().filter(|(cause, _)| is_counted(**cause));
        counts
            .map(|(_, count)| count.saturating_sub(LINES_MAX))
            .sum()
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
        assert_eq!(limit.hidden_failures(), 6);
        assert_eq!(limit.hidden_signatures(), 0);
        limit.reset();
        assert!(failed(&not_found(0)));
        assert_eq!(limit.hidden_failures(), 0);
    }
}
