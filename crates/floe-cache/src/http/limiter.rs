//! The limit of requests in flight to one cache.
//!
//! Over HTTP/1.1 each request in flight needs its own connection, and the user limits their number
//! (`http-connections`). A prefetched large body keeps its connection until a worker reads it.
//! Therefore the last connection is never given to a prefetched body: all workers might wait for
//! that connection, while the body waits for a worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use reqwest::{Response, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The connections to one cache.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    connection_permits: Arc<Semaphore>,
    /// Permits for prefetched bodies: one less than there are connections.
    prefetch_permits: Arc<Semaphore>,
    /// The URL of the cache if it speaks HTTP/2, where one connection carries all requests.
    http2_base: OnceLock<Url>,
    /// Whether the remembered HTTP/2 turned out to be stale.
    is_http2_stale: AtomicBool,
}

/// Permission to have one request in flight.
#[derive(Debug)]
pub(super) struct RequestPermit {
    _connection: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimiter {
    /// Makes a limiter for `count` connections, at least one.
    pub(super) fn new(count: usize) -> ConnectionLimiter {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        ConnectionLimiter {
            connection_permits: Arc::new(Semaphore::new(count)),
            prefetch_permits: Arc::new(Semaphore::new(count - 1)),
            http2_base: OnceLock::new(),
            is_http2_stale: AtomicBool::new(false),
        }
    }

    /// Records that the cache with this URL speaks HTTP/2.
    pub(super) fn set_http2(&self, base: Url) {
        // Only the first call counts.
        let _: Result<(), _> = self.http2_base.set(base);
    }

    /// Notices that a cache does not speak the remembered HTTP/2 any more.
    pub(super) fn observe(&self, answer: &Response) {
        if answer.version() != Version::HTTP_2 {
            self.clear_http2(answer.url());
        }
    }

    /// Records that the server of this URL does not speak HTTP/2.
    fn clear_http2(&self, url: &Url) {
        if self.uses_http2(url) {
            self.is_http2_stale.store(true, Ordering::Relaxed);
        }
    }

    /// Waits for a connection. Requests get connections in their order.
    pub(super) async fn acquire(&self, url: &Url) -> RequestPermit {
        let _connection = match self.uses_http2(url) {
            true => None,
            // The semaphore is never closed.
            false => self.connection_permits.clone().acquire_owned().await.ok(),
        };
        RequestPermit { _connection }
    }

    /// Returns a connection for a prefetched body, or `None` if only the last one is free.
    pub(super) fn try_acquire_prefetch(
        &self,
        url: &Url,
    ) -> Option<(RequestPermit, Option<OwnedSemaphorePermit>)> {
        let (prefetch_permit, _connection) = match self.uses_http2(url) {
            true => (None, None),
            false => (
                Some(self.prefetch_permits.clone().try_acquire_owned().ok()?),
                Some(self.connection_permits.clone().try_acquire_owned().ok()?),
            ),
        };
        Some((RequestPermit { _connection }, prefetch_permit))
    }

    /// Whether a URL belongs to the cache and the cache speaks HTTP/2. A narinfo may name NARs of
    /// other hosts, whose version is unknown.
    fn uses_http2(&self, url: &Url) -> bool {
        let is_http2_stale = self.is_http2_stale.load(Ordering::Relaxed);
        let http2_base = self.http2_base.get().filter(|_| !is_http2_stale);
        http2_base.is_some_and(|base| base.origin() == url.origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn limiter_reserves_last_connection_from_prefetch() {
        let nar = url("http://cache.example.org/nar/a");
        for count in [0, 1, 2, 25] {
            let limiter = ConnectionLimiter::new(count);
            let mut acquired: Vec<_> =
                std::iter::from_fn(|| limiter.try_acquire_prefetch(&nar)).collect();
            assert_eq!(acquired.len(), count.saturating_sub(1));
            assert_eq!(limiter.connection_permits.available_permits(), 1);
            // A body that a worker reads allows another prefetch, but no further connection.
            if let Some((permit, prefetch)) = acquired.pop() {
                drop(prefetch);
                let (last, _) = limiter.try_acquire_prefetch(&nar).unwrap();
                assert!(limiter.try_acquire_prefetch(&nar).is_none());
                drop((permit, last));
                assert_eq!(limiter.connection_permits.available_permits(), 2);
            }
        }
    }

    #[test]
    fn limiter_does_not_count_http2_origin_only() {
        let limiter = ConnectionLimiter::new(1);
        limiter.set_http2(url("https://cache.example.org/deep"));
        let (own, other) = (
            url("https://cache.example.org/nar/a"),
            url("https://other.example.org/nar/a"),
        );
        let acquired: Vec<_> = (0..100)
            .map_while(|_| limiter.try_acquire_prefetch(&own))
            .collect();
        assert_eq!(acquired.len(), 100);
        assert!(limiter.try_acquire_prefetch(&other).is_none());
    }

    #[test]
    fn limiter_counts_again_after_http2_is_cleared() {
        let limiter = ConnectionLimiter::new(1);
        let own = url("https://cache.example.org/nar/a");
        limiter.set_http2(url("https://cache.example.org"));
        limiter.clear_http2(&url("https://other.example.org/nar/a"));
        assert!(limiter.try_acquire_prefetch(&own).is_some());
        limiter.clear_http2(&own);
        assert!(limiter.try_acquire_prefetch(&own).is_none());
    }
}
