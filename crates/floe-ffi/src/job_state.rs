//! The progress and the cancellation of a request, which its worker and the engine thread share.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use floe_messages::Progress;
use floe_transfer::{Cancel, Event, EventSink};

/// The latest progress of a request, and whether the request should end. The worker writes the
/// progress, and the engine thread reads it from time to time. Earlier progress is overwritten.
#[derive(Debug, Default)]
pub(crate) struct JobState {
    pub(crate) cancel: Cancel,
    is_new: AtomicBool,
    paths_done: AtomicU64,
    paths_total: AtomicU64,
    /// Decreases if a transfer restarts.
    nar_bytes_done: AtomicI64,
    nar_bytes_total: AtomicU64,
    download_bytes: AtomicU64,
}

impl JobState {
    /// Sets the totals: paths, bytes of NARs, bytes to download.
    fn plan(&self, paths: u64, nar_bytes: u64, download_bytes: u64) {
        self.paths_total.store(paths, Ordering::Relaxed);
        self.nar_bytes_total.store(nar_bytes, Ordering::Relaxed);
        self.download_bytes.store(download_bytes, Ordering::Relaxed);
        self.touch();
    }

    pub(crate) fn bytes_done(&self, nar_bytes: i64) {
        self.nar_bytes_done.fetch_add(nar_bytes, Ordering::Relaxed);
        self.touch();
    }

    fn touch(&self) {
        self.is_new.store(true, Ordering::Release);
    }

    /// Returns the progress if it has changed since the last call. The request is `elapsed_ms` old.
    pub(crate) fn take_update(&self, elapsed_ms: u64) -> Option<Progress> {
        if !self.is_new.swap(false, Ordering::Acquire) {
            return None;
        }
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let nar_bytes_done = self.nar_bytes_done.load(Ordering::Relaxed);
        Some(Progress {
            elapsed_ms,
            paths_done: read(&self.paths_done),
            paths_total: read(&self.paths_total),
            nar_bytes_done: nar_bytes_done.try_into().unwrap_or(0),
            nar_bytes_total: read(&self.nar_bytes_total),
            download_bytes: read(&self.download_bytes),
        })
    }
}

impl EventSink for JobState {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => self.plan(paths as u64, nar_bytes, download_bytes),
            Event::Progress { nar_bytes, .. } => self.bytes_done(nar_bytes),
            Event::Registered { paths } => {
                self.paths_done.store(paths as u64, Ordering::Relaxed);
                self.touch();
            }
            _ => {}
        }
    }
}

impl floe_store::Progress for JobState {
    fn started(&self, paths: u64, nar_bytes: u64) {
        self.plan(paths, nar_bytes, 0);
    }

    fn path_done(&self, nar_bytes: u64) {
        self.paths_done.fetch_add(1, Ordering::Relaxed);
        self.bytes_done(nar_bytes.try_into().unwrap_or(i64::MAX));
    }

    fn should_continue(&self) -> bool {
        !self.cancel.is_raised()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_update_returns_only_the_latest_change() {
        let state = JobState::default();
        assert!(state.take_update(0).is_none());
        state.plan(7, 1000, 300);
        state.bytes_done(400);
        state.bytes_done(-150);
        state.event(Event::Registered { paths: 2 });
        let update = state.take_update(0).unwrap();
        let found = (update.paths_done, update.paths_total, update.nar_bytes_done);
        assert_eq!(found, (2, 7, 250));
        assert_eq!((update.nar_bytes_total, update.download_bytes), (1000, 300));
        assert!(state.take_update(0).is_none());
    }
}
