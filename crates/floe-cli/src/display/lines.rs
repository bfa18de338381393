//! A move as plain lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use floe_engine::{Event, EventSink};

use super::stderr::{say, warn};
use crate::messages::{
    damaged_link, left, not_reused, plan, retrying, scarce, waiting, waiting_for,
};

/// A line for each path and each failure.
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
                say(plan(paths, nar_bytes, download_bytes));
            }
            Event::Staged { path } => {
                let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
                say(format_args!(
                    "[{finished}/{}] {path}",
                    self.planned.load(Ordering::Relaxed)
                ));
            }
            Event::LowSpace { shortage } => warn(scarce(shortage)),
            Event::Retrying { path, error } => say(retrying(path, error)),
            Event::NotReused { path, place, error } => warn(not_reused(path, place, error)),
            Event::DamagedLink { path, link } => warn(damaged_link(path, link)),
            Event::Failed { error } => say(format_args!("floe: {error}")),
            Event::KeptForResume { paths } => say(left(paths)),
            Event::WaitingForLock { path } => say(waiting(path)),
            Event::WaitingForDatabase { what } => say(waiting_for(what)),
            _ => {}
        }
    }
}
