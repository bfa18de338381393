//! The progress of a copy as plain lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use floe_transfer::{Event, EventSink};

use super::stderr::{eprint_error, eprint_line, warn};
use crate::messages::copy::{event_line, event_warning, plan};

/// Prints a line for each path and each failure.
#[derive(Debug, Default)]
pub(super) struct Lines {
    planned: AtomicUsize,
    finished: AtomicUsize,
}

impl EventSink for Lines {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Planned { paths: 0, .. } => {}
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => {
                self.planned.fetch_add(paths, Ordering::Relaxed);
                eprint_line(plan(paths, nar_bytes, download_bytes));
            }
            Event::Staged { path } => {
                let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
                let planned = self.planned.load(Ordering::Relaxed);
                eprint_line(format_args!("[{finished}/{planned}] {path}"));
            }
            Event::Failed { error } => eprint_error(error),
            other => match event_warning(&other) {
                Some(warning) => warn(warning),
                None => event_line(&other).into_iter().for_each(eprint_line),
            },
        }
    }
}
