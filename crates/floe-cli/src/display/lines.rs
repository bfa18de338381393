//! The progress of a copy as plain lines.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;
use floe_transfer::{Event, EventSink};

use super::stderr::{eprint_error, eprint_line, warn};
use crate::messages::copy::{event_line, event_warning, plan};

/// Prints a line for each path and each failure.
#[derive(Debug, Default)]
pub(super) struct Lines {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    planned: usize,
    finished: usize,
    /// Paths without a line. Those that finish before the plan is complete get theirs after it.
    staged: VecDeque<StorePath>,
}

impl Lines {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Prints the lines of finished paths, as far as the plan has them.
    fn print_finished(&mut self) {
        while self.finished < self.planned
            && let Some(path) = self.staged.pop_front()
        {
            self.finished += 1;
            eprint_line(format_args!("[{}/{}] {path}", self.finished, self.planned));
        }
    }
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
                let mut counts = self.counts();
                counts.planned += paths;
                eprint_line(plan(paths, nar_bytes, download_bytes));
                counts.print_finished();
            }
            Event::Staged { path } => {
                let mut counts = self.counts();
                counts.staged.push_back(path.clone());
                counts.print_finished();
            }
            Event::Failed { error } => eprint_error(error),
            other => match event_warning(&other) {
                Some(warning) => warn(warning),
                None => event_line(&other).into_iter().for_each(eprint_line),
            },
        }
    }
}
