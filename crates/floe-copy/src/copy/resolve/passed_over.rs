//! Reports the sources that the resolver passes over, each of them once.

use std::collections::BTreeSet;

use floe_transfer::{Error, Event};

use super::ClosureCopy;
use crate::copy::trust::store_dir_mismatch;

/// The sources that were reported.
#[derive(Debug, Default)]
pub(super) struct PassedOver(BTreeSet<usize>);

impl PassedOver {
    /// Reports the errors of sources that were queried for a path before another one had it.
    pub(super) fn report(&mut self, copy: &ClosureCopy<'_>, errors: &[(usize, Error)]) {
        for (source, error) in errors {
            self.report_once(copy, *source, error);
        }
    }

    /// Reports the sources that failed to open while the closure was resolved, and those for
    /// another store directory.
    pub(super) fn report_unusable(&mut self, copy: &ClosureCopy<'_>) {
        for (index, source) in copy.sources.list.iter().enumerate() {
            match source.open_result() {
                Some(Err(error)) => self.report_once(copy, index, &error),
                _ if source.is_for(copy.target.store_dir()) => {}
                _ => self.report_once(
                    copy,
                    index,
                    &store_dir_mismatch(&**source, copy.target.store_dir()),
                ),
            }
        }
    }

    fn report_once(&mut self, copy: &ClosureCopy<'_>, source: usize, error: &Error) {
        if self.0.insert(source) {
            let source = &copy.sources.list[source].name();
            copy.events.event(Event::PassedOverSource { source, error });
        }
    }
}
