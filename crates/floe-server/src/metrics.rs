//! The figures of a server, for Prometheus.
//!
//! Each thread counts in [`counters::Counters`] of its own. A scrape of `/metrics` sums them up.

pub(crate) mod counters;
mod exposition;
mod families;
mod process;
mod traffic;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::auth::logins::LoginCounters;
use counters::{Cell, Cells, Counters};
use process::ProcessFigures;
use traffic::TrafficLog;
pub(crate) use traffic::{DAY, HOUR, Traffic};

/// The figures of a server.
#[derive(Debug)]
pub(crate) struct Metrics {
    threads: Mutex<Vec<Arc<Cells>>>,
    /// How many connections may be open at once.
    connections_max: AtomicUsize,
    workers: usize,
    /// `None` if the server needs no login.
    logins: Option<Arc<LoginCounters>>,
    /// How many NARs were sent uncompressed because all encoders were in use.
    encoder_limit: AtomicU64,
    /// When each certificate expires, as the time since 1970, by its file.
    certificates: Mutex<BTreeMap<String, Duration>>,
    process: ProcessFigures,
    traffic: Mutex<TrafficLog>,
}

impl Metrics {
    pub(crate) fn new(
        connections_max: usize,
        workers: usize,
        logins: Option<Arc<LoginCounters>>,
    ) -> Arc<Metrics> {
        Arc::new(Metrics {
            threads: Mutex::default(),
            connections_max: AtomicUsize::new(connections_max),
            workers,
            logins,
            encoder_limit: AtomicU64::new(0),
            certificates: Mutex::default(),
            process: ProcessFigures::new(),
            traffic: Mutex::default(),
        })
    }

    /// Sets how many connections may be open at once.
    pub(crate) fn set_connections_max(&self, max: usize) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Replaces the times since 1970 at which the certificates for TLS expire, by their files.
    pub(crate) fn set_certificate_expiries(&self, expiries: BTreeMap<String, Duration>) {
        *self.certificates.lock() = expiries;
    }

    /// Counts a NAR that is sent uncompressed because all encoders are in use.
    pub(crate) fn count_encoder_limit(&self) {
        self.encoder_limit.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns counters for one more thread. The figures outlive the thread.
    pub(crate) fn register(&self) -> Counters {
        let cells = Arc::new(Cells::default());
        self.threads.lock().push(cells.clone());
        Counters::new(cells)
    }

    /// Returns all figures in the text format of Prometheus, version 0.0.4.
    pub(crate) fn text(&self) -> String {
        exposition::text(self)
    }

    /// Notes the traffic from time to time. Each thread calls this often.
    pub(crate) fn note_traffic(&self, now: Instant) {
        if let Some(mut log) = self.traffic.try_lock() {
            log.note(now, || self.traffic());
        }
    }

    /// Returns what the server has sent since its start.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut requests = 0;
        for cells in self.threads.lock().iter() {
            let counts = cells.responses.iter().flatten().map(Cell::get);
            requests += counts.fold(0, u64::wrapping_add);
        }
        Traffic {
            requests,
            sent_bytes: self.sum(|cells| &cells.sent_bytes),
        }
    }

    /// Returns what the server has sent in a time of at most a day until now.
    pub(crate) fn traffic_within(&self, time: Duration) -> Traffic {
        let total = self.traffic();
        self.traffic.lock().within(time, Instant::now(), total)
    }

    /// Returns the start of the process as the time since 1970, if it is known.
    pub(crate) fn start(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.process.start()?).ok()
    }

    /// Returns the sum of a number over all threads.
    fn sum(&self, pick: impl Fn(&Cells) -> &Cell) -> u64 {
        self.threads
            .lock()
            .iter()
            .map(|cells| pick(cells).get())
            .fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests;
