//! The figures that one thread counts.
//!
//! A counter belongs to one thread, so counting needs neither a lock nor an atomic
//! read-modify-write instruction, and no cache line moves between cores until a scrape reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::http::refusal::Refusal;
use crate::http::response::{CacheKind, CacheUse};
use crate::http::route_kind::RouteKind;

/// A number that one thread writes and others read.
#[derive(Debug, Default)]
pub(super) struct Cell(AtomicU64);

impl Cell {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the number. Only the thread that owns it may call this.
    fn add(&self, value: u64) {
        self.set(self.get().wrapping_add(value));
    }
}

/// The figures of one thread. No other thread has figures in the same cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Cells {
    /// By route and status.
    pub(super) responses: [[Cell; STATUSES.len()]; ROUTES],
    /// By route.
    pub(super) body_bytes: [Cell; ROUTES],
    /// By route.
    pub(super) durations: [Durations; ROUTES],
    pub(super) refusals: [Cell; Refusal::ALL.len()],
    /// Hits and misses by cache.
    pub(super) cache_uses: [[Cell; 2]; CacheKind::ALL.len()],
    /// By listener.
    pub(super) accepted: [Cell; ListenerKind::ALL.len()],
    pub(super) closed: Cell,
    pub(super) sent_bytes: Cell,
    /// By [`UploadResult`].
    pub(super) uploads: [Cell; UploadResult::ALL.len()],
    pub(super) upload_bytes: Cell,
    /// Connections that a network thread has queued for a worker.
    pub(super) jobs_queued: Cell,
    pub(super) jobs_begun: Cell,
    pub(super) jobs_ended: Cell,
    pub(super) database_reopenings: Cell,
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub(super) struct Durations {
    /// How many are at most as long as each bound and longer than the bound before it; at last,
    /// those that are longer than all bounds.
    pub(super) buckets: [Cell; DURATION_BOUNDS.len() + 1],
    /// The sum in nanoseconds.
    pub(super) sum: Cell,
}

/// The results of uploads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadResult {
    Received,
    Refused,
    /// The client has closed the connection before the end.
    Broken,
}

impl UploadResult {
    /// All results, in the order of their numbers.
    pub(super) const ALL: [UploadResult; 3] = [
        UploadResult::Received,
        UploadResult::Refused,
        UploadResult::Broken,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            UploadResult::Received => "received",
            UploadResult::Refused => "refused",
            UploadResult::Broken => "broken",
        }
    }
}

/// The kinds of listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Tcp,
    Tls,
    Unix,
    /// A listener of `--metrics-listen`.
    Monitoring,
    /// A listener of `--redirect-listen`.
    Redirect,
}

impl ListenerKind {
    /// All kinds, in the order of their numbers.
    pub(super) const ALL: [ListenerKind; 5] = [
        ListenerKind::Tcp,
        ListenerKind::Tls,
        ListenerKind::Unix,
        ListenerKind::Monitoring,
        ListenerKind::Redirect,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ListenerKind::Tcp => "tcp",
            ListenerKind::Tls => "tls",
            ListenerKind::Unix => "unix",
            ListenerKind::Monitoring => "monitoring",
            ListenerKind::Redirect => "redirect",
        }
    }
}

/// The counters of one thread, which alone writes them.
#[derive(Debug)]
pub(crate) struct Counters {
    cells: Arc<Cells>,
    /// The responses of the current batch by route.
    batch: [u32; ROUTES],
}

impl Counters {
    pub(super) fn new(cells: Arc<Cells>) -> Counters {
        let batch = [0; ROUTES];
        Counters { cells, batch }
    }

    pub(crate) fn count_response(&mut self, route: RouteKind, status: u16, body_bytes: u64) {
        let route = route as usize;
        let known = STATUSES.iter().position(|known| *known == status);
        self.cells.responses[route][known.unwrap_or(STATUSES.len() - 1)].add(1);
        self.cells.body_bytes[route].add(body_bytes);
    }

    /// Counts a response of the current batch, whose duration is that of the batch.
    pub(crate) fn count_in_batch(&mut self, route: RouteKind) {
        self.batch[route as usize] += 1;
    }

    /// Ends a batch of requests that were read at `began`.
    pub(crate) fn end_batch(&mut self, began: Instant) {
        if self.batch == [0; ROUTES] {
            return;
        }
        let duration = began.elapsed();
        for (route, count) in std::mem::take(&mut self.batch).into_iter().enumerate() {
            if count > 0 {
                self.cells.durations[route].add(duration, count.into());
            }
        }
    }

    pub(crate) fn count_duration(&mut self, route: RouteKind, duration: Duration) {
        self.cells.durations[route as usize].add(duration, 1);
    }

    pub(crate) fn count_refusal(&mut self, refusal: Refusal) {
        if let Some(count) = self.cells.refusals.get(refusal as usize) {
            count.add(1);
        }
    }

    pub(crate) fn count_cache_use(&mut self, kind: CacheKind, cache: CacheUse) {
        self.cells.cache_uses[kind as usize][cache as usize].add(1);
    }

    pub(crate) fn count_accepted(&mut self, listener: ListenerKind) {
        self.cells.accepted[listener as usize].add(1);
    }

    pub(crate) fn count_closed(&mut self) {
        self.cells.closed.add(1);
    }

    pub(crate) fn count_sent(&mut self, bytes: u64) {
        self.cells.sent_bytes.add(bytes);
    }

    pub(crate) fn count_upload(&mut self, result: UploadResult) {
        self.cells.uploads[result as usize].add(1);
    }

    /// Counts bytes of bodies.
    pub(crate) fn count_upload_bytes(&mut self, bytes: u64) {
        self.cells.upload_bytes.add(bytes);
    }

    pub(crate) fn count_queued_job(&mut self) {
        self.cells.jobs_queued.add(1);
    }

    pub(crate) fn count_begun_job(&mut self) {
        self.cells.jobs_begun.add(1);
    }

    pub(crate) fn count_ended_job(&mut self) {
        self.cells.jobs_ended.add(1);
    }

    /// Notes how often the thread has opened the database again since its start.
    pub(crate) fn note_database_reopenings(&mut self, count: u64) {
        self.cells.database_reopenings.set(count);
    }
}

impl Durations {
    fn add(&self, duration: Duration, count: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].add(count);
        self.sum.add(nanos.wrapping_mul(count));
    }
}

const ROUTES: usize = RouteKind::ALL.len();

/// The statuses of responses. The last one also stands for any other, as in the status line.
pub(super) const STATUSES: [u16; 23] = [
    200, 404, 206, 304, 308, 400, 401, 403, 405, 408, 414, 416, 429, 431, 502, 503, 201, 409, 412,
    413, 415, 507, 500,
];

/// The bounds of the histograms in nanoseconds, from a batch of requests that is responded to from
/// memory to a wait for the database.
pub(super) const DURATION_BOUNDS: [u64; 12] = [
    50_000,
    100_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    50_000_000,
    100_000_000,
    500_000_000,
    1_000_000_000,
    5_000_000_000,
    30_000_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_their_numbers() {
        for (number, kind) in ListenerKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        for (number, result) in UploadResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, number);
        }
        for (number, kind) in CacheKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        for (number, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, number);
            assert!(STATUSES.contains(&refusal.status()), "{refusal:?}");
        }
        assert_eq!([CacheUse::Hit as usize, CacheUse::Miss as usize], [0, 1]);
    }

    #[test]
    fn duration_is_counted_below_the_next_bound() {
        let durations = Durations::default();
        for (nanos, bucket) in [
            (0, 0),
            (50_000, 0),
            (50_001, 1),
            (30_000_000_000, 11),
            (30_000_000_001, 12),
        ] {
            let before = durations.buckets[bucket].get();
            durations.add(Duration::from_nanos(nanos), 3);
            assert_eq!(durations.buckets[bucket].get(), before + 3, "{nanos}");
        }
        assert_eq!(durations.sum.get(), 3 * 60_000_100_002);
    }

    #[test]
    fn batch_is_counted_at_its_end() {
        let cells = Arc::new(Cells::default());
        let mut counters = Counters::new(cells.clone());
        counters.count_in_batch(RouteKind::NarInfo);
        counters.count_in_batch(RouteKind::NarInfo);
        let durations = &cells.durations[RouteKind::NarInfo as usize];
        let count = || durations.buckets.iter().map(Cell::get).sum::<u64>();
        assert_eq!(count(), 0);
        counters.end_batch(Instant::now());
        counters.end_batch(Instant::now());
        assert_eq!(count(), 2);
    }
}
