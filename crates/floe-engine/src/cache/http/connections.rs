//! How many requests a cache is asked at once.
//!
//! Over HTTP/1.1 each request in flight has a connection for itself, and a user may say how many of
//! those there are (`http-connections`). A large body that is asked for ahead of its turn may stand
//! still until a worker has time for it, and keeps its connection meanwhile. So the last connection
//! is never given to such a body: all workers might wait for others, which would wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use reqwest::{Response, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::body::Ahead;

/// The connections to one cache.
#[derive(Debug)]
pub(super) struct Connections {
    free: Arc<Semaphore>,
    /// For bodies whose workers come later; one less than there are connections.
    ahead: Arc<Semaphore>,
    /// The cache's address, if it speaks HTTP/2: one connection carries all that it is asked.
    shared: OnceLock<Url>,
    /// That was remembered, and is not so any more.
    is_parted: AtomicBool,
}

/// Leave to have a request in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Leave {
    _connection: Option<OwnedSemaphorePermit>,
}

impl Connections {
    /// So many, and at least one.
    pub(super) fn new(count: usize) -> Connections {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        Connections {
            free: Arc::new(Semaphore::new(count)),
            ahead: Arc::new(Semaphore::new(count - 1)),
            shared: OnceLock::new(),
            is_parted: AtomicBool::new(false),
        }
    }

    /// The cache of that address speaks HTTP/2.
    pub(super) fn share(&self, base: Url) {
        // Nobody else sets it.
        let _: Result<(), _> = self.shared.set(base);
    }

    /// What was remembered of a cache counts until it answers otherwise.
    pub(super) fn learn(&self, answer: &Response) {
        if answer.version() != Version::HTTP_2 {
            self.part(answer.url());
        }
    }

    /// Whoever has that address does not speak HTTP/2.
    fn part(&self, url: &Url) {
        if self.is_shared(url) {
            self.is_parted.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for a connection; those who wait have it in turn.
    pub(super) async fn take(&self, url: &Url) -> Leave {
        let _connection = match self.is_shared(url) {
            true => None,
            // The semaphore is never closed.
            false => self.free.clone().acquire_owned().await.ok(),
        };
        Leave { _connection }
    }

    /// A connection for a body whose worker comes later; `None` if there is none to spare.
    pub(super) fn spare(&self, url: &Url) -> Option<(Leave, Ahead)> {
        let (place, _connection) = match self.is_shared(url) {
            true => (None, None),
            false => (
                Some(self.ahead.clone().try_acquire_owned().ok()?),
                Some(self.free.clone().try_acquire_owned().ok()?),
            ),
        };
        Some((Leave { _connection }, Ahead::new(place)))
    }

    /// A cache may name NARs of other hosts, of which nothing is known.
    fn is_shared(&self, url: &Url) -> bool {
        let is_parted = self.is_parted.load(Ordering::Relaxed);
        let shared = self.shared.get().filter(|_| !is_parted);
        shared.is_some_and(|base| base.origin() == url.origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn the_last_connection_is_kept_from_bodies_that_nobody_reads_yet() {
        let nar = url("http://cache.example.org/nar/a");
        for count in [0, 1, 2, 25] {
            let connections = Connections::new(count);
            let mut spared: Vec<_> = std::iter::from_fn(|| connections.spare(&nar)).collect();
            assert_eq!(spared.len(), count.saturating_sub(1));
            assert_eq!(connections.free.available_permits(), 1);
            // One that is being read makes room for another, but for no connection more.
            if let Some((leave, ahead)) = spared.pop() {
                drop(ahead);
                let (last, _) = connections.spare(&nar).unwrap();
                assert!(connections.spare(&nar).is_none());
                drop((leave, last));
                assert_eq!(connections.free.available_permits(), 2);
            }
        }
    }

    #[test]
    fn only_what_is_behind_the_shared_connection_is_not_counted() {
        let connections = Connections::new(1);
        connections.share(url("https://cache.example.org/deep"));
        let (own, other) = (
            url("https://cache.example.org/nar/a"),
            url("https://other.example.org/nar/a"),
        );
        let spared: Vec<_> = (0..100).map_while(|_| connections.spare(&own)).collect();
        assert_eq!(spared.len(), 100);
        assert!(connections.spare(&other).is_none());
    }

    #[test]
    fn who_does_not_speak_http2_any_more_has_its_requests_counted_again() {
        let connections = Connections::new(1);
        let own = url("https://cache.example.org/nar/a");
        connections.share(url("https://cache.example.org"));
        connections.part(&url("https://other.example.org/nar/a"));
        assert!(connections.spare(&own).is_some());
        connections.part(&own);
        assert!(connections.spare(&own).is_none());
    }
}
