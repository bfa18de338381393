//! The progress of a copy as plain lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use floe_transfer::{Event, EventSink};

use super::stderr::{eprint_line, warn};
use crate::messages::copy::{
    damaged_link, kept_for_resume, low_space, not_reused, plan, retrying, waiting_for_lock,
};
use crate::messages::waiting_for_resource;

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
                eprint_line(format_args!(
                    "[{finished}/{}] {path}",
                    self.planned.load(Ordering::Relaxed)
                ));
            }
            Event::LowSpace { shortage } => warn(low_space(shortage)),
            Event::Retrying { path, error } => eprint_line(retrying(path, error)),
            Event::NotReused { path, place, error } => warn(not_reused(path, place, error)),
            Event::DamagedLink { path, link } => warn(damaged_link(path, link)),
            Event::Failed { error } => eprint_line(format_args!("floe: {error}")),
            Event::KeptForResume { paths } => eprint_line(kept_for_resume(paths)),
            Event::WaitingForLock { path } => eprint_line(waiting_for_lock(path)),
            Event::WaitingForDatabase { what } => eprint_line(waiting_for_resource(what)),
            _ => {}
        }
    }
}
