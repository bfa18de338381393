//! The limit of requests in flight to one cache.
//!
//! Over HTTP/1.1 each request in flight needs its own connection, and the user limits their number
//! (`http-connections`). A prefetched large body keeps its connection until a worker reads it.
//! Therefore the last connection is never given to a prefetched body: all workers might wait for
//! that connection, while the body waits for a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::{Response, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The connections to one cache.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    connection_permits: Arc<Semaphore>,
    /// Permits for prefetched bodies: one less than there are connections.
    prefetch_permits: Arc<Semaphore>,
    /// The URL of the cache.
    base: Url,
    /// Whether the cache speaks HTTP/2, where one connection carries all requests.
    uses_http2: AtomicBool,
}

/// Permission to have one request in flight. Over HTTP/2 it holds no connection.
pub(super) type RequestPermit = Option<OwnedSemaphorePermit>;

impl ConnectionLimiter {
    /// Makes a limiter for `count` connections, at least one, to the cache with this URL.
    pub(super) fn new(count: usize, base: &Url) -> ConnectionLimiter {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        ConnectionLimiter {
            connection_permits: Arc::new(Semaphore::new(count)),
            prefetch_permits: Arc::new(Semaphore::new(count - 1)),
            base: base.clone(),
            uses_http2: AtomicBool::new(false),
        }
    }

    /// Records that the cache speaks HTTP/2.
    pub(super) fn set_http2(&self) {
        self.uses_http2.store(true, Ordering::Relaxed);
    }

    /// Notices that a cache does not speak the remembered HTTP/2 any more.
    pub(super) fn observe(&self, answer: &Response) {
        if answer.version() != Version::HTTP_2 {
            self.clear_http2(answer.url());
        }
    }

    /// Records that the server of this URL does not speak HTTP/2.
    fn clear_http2(&self, url: &Url) {
        if url.origin() == self.base.origin() {
            self.uses_http2.store(false, Ordering::Relaxed);
        }
    }

    /// Waits for a connection. Requests get connections in their order.
    pub(super) async fn acquire(&self, url: &Url) -> RequestPermit {
        match self.uses_http2(url) {
            true => None,
            // The semaphore is never closed.
            false => self.connection_permits.clone().acquire_owned().await.ok(),
        }
    }

    /// Returns a connection for a prefetched body, or `None` if only the last one is free.
    pub(super) fn try_acquire_prefetch(
        &self,
        url: &Url,
    ) -> Option<(RequestPermit, Option<OwnedSemaphorePermit>)> {
        let (prefetch_permit, connection) = match self.uses_http2(url) {
            true => (None, None),
            false => (
                Some(self.prefetch_permits.clone().try_acquire_owned().ok()?),
                Some(self.connection_permits.clone().try_acquire_owned().ok()?),
            ),
        };
        Some((connection, prefetch_permit))
    }

    /// Whether a URL belongs to the cache and the cache speaks HTTP/2. A narinfo may name NARs of
    /// other hosts, whose version is unknown.
    fn uses_http2(&self, url: &Url) -> bool {
        self.uses_http2.load(Ordering::Relaxed) && url.origin() == self.base.origin()
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
            let limiter = ConnectionLimiter::new(count, &nar);
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
        let limiter = ConnectionLimiter::new(1, &url("https://cache.example.org/deep"));
        limiter.set_http2();
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
        let own = url("https://cache.example.org/nar/a");
        let limiter = ConnectionLimiter::new(1, &own);
        limiter.set_http2();
        limiter.clear_http2(&url("https://other.example.org/nar/a"));
        assert!(limiter.try_acquire_prefetch(&own).is_some());
        limiter.clear_http2(&own);
        assert!(limiter.try_acquire_prefetch(&own).is_none());
    }
}
