//! The progress of a request: written by its worker, read by the engine thread from time to time.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use floe_messages::Progress;
use floe_transfer::{Event, EventSink};

/// The latest progress of a request. Earlier states are overwritten.
#[derive(Debug)]
pub(crate) struct ProgressCell {
    begun: Instant,
    is_new: AtomicBool,
    paths_done: AtomicU64,
    paths_total: AtomicU64,
    /// Decreases if a transfer restarts.
    nar_bytes_done: AtomicI64,
    nar_bytes_total: AtomicU64,
    download_bytes: AtomicU64,
}

impl ProgressCell {
    pub(crate) fn new() -> ProgressCell {
        ProgressCell {
            begun: Instant::now(),
            is_new: AtomicBool::new(false),
            paths_done: AtomicU64::new(0),
            paths_total: AtomicU64::new(0),
            nar_bytes_done: AtomicI64::new(0),
            nar_bytes_total: AtomicU64::new(0),
            download_bytes: AtomicU64::new(0),
        }
    }

    /// Sets the totals: paths, bytes of NARs, bytes to download.
    pub(crate) fn plan(&self, paths: u64, nar_bytes: u64, download_bytes: u64) {
        self.paths_total.store(paths, Ordering::Relaxed);
        self.nar_bytes_total.store(nar_bytes, Ordering::Relaxed);
        self.download_bytes.store(download_bytes, Ordering::Relaxed);
        self.touch();
    }

    /// Adds one path with all its bytes.
    pub(crate) fn path_done(&self, nar_bytes: u64) {
        self.paths_done.fetch_add(1, Ordering::Relaxed);
        self.bytes_done(nar_bytes.try_into().unwrap_or(i64::MAX));
    }

    pub(crate) fn bytes_done(&self, nar_bytes: i64) {
        self.nar_bytes_done.fetch_add(nar_bytes, Ordering::Relaxed);
        self.touch();
    }

    fn touch(&self) {
        self.is_new.store(true, Ordering::Release);
    }

    /// Returns the progress if it has changed since the last call.
    pub(crate) fn take_update(&self) -> Option<Progress> {
        if !self.is_new.swap(false, Ordering::Acquire) {
            return None;
        }
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let nar_bytes_done = self.nar_bytes_done.load(Ordering::Relaxed);
        Some(Progress {
            elapsed_ms: self.begun.elapsed().as_millis() as u64,
            paths_done: read(&self.paths_done),
            paths_total: read(&self.paths_total),
            nar_bytes_done: nar_bytes_done.try_into().unwrap_or(0),
            nar_bytes_total: read(&self.nar_bytes_total),
            download_bytes: read(&self.download_bytes),
        })
    }
}

impl EventSink for ProgressCell {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_update_returns_only_the_latest_change() {
        let cell = ProgressCell::new();
        assert!(cell.take_update().is_none());
        cell.plan(7, 1000, 300);
        cell.bytes_done(400);
        cell.bytes_done(-150);
        cell.event(Event::Registered { paths: 2 });
        let update = cell.take_update().unwrap();
        let found = (update.paths_done, update.paths_total, update.nar_bytes_done);
        assert_eq!(found, (2, 7, 250));
        assert_eq!((update.nar_bytes_total, update.download_bytes), (1000, 300));
        assert!(cell.take_update().is_none());
    }
}
