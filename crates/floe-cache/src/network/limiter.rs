//! The limit of requests in flight to one host.
//!
//! Over HTTP/1.1 each request in flight needs its own connection, and the user limits their number
//! (`http-connections`). All caches of a copy share the limits, and a redirect counts against the
//! limit of the host to which it leads. Over HTTP/2 few connections carry all requests (see
//! `client`).
//!
//! Two rules exclude that requests wait for each other without end:
//!
//! - A prefetched large body keeps its connection until a worker reads it. All caches together have
//!   one such body less than a host has connections. Otherwise all workers might wait for a
//!   connection to this host, while the bodies wait for a worker.
//! - A redirected request holds a connection to each of two hosts. It waits for the second one only
//!   if the name of that host comes later; otherwise it returns the first one before it waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use reqwest::{Response, Url, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The connections of a copy.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    /// The number of connections to each host.
    count: usize,
    /// Permits for prefetched bodies.
    prefetch_permits: Arc<Semaphore>,
    /// The hosts, by scheme, name and port.
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

#[derive(Debug)]
struct Host {
    name: String,
    permits: Arc<Semaphore>,
    /// Whether the host speaks HTTP/2.
    uses_http2: AtomicBool,
}

impl Host {
    fn uses_http2(&self) -> bool {
        self.uses_http2.load(Ordering::Relaxed)
    }

    async fn acquire(self: Arc<Host>) -> Connection {
        Connection {
            // The semaphore is never closed.
            permit: self.permits.clone().acquire_owned().await.ok(),
            host: self,
        }
    }

    /// Returns a connection if one is free now.
    fn try_acquire(self: &Arc<Host>) -> Option<Connection> {
        let permit = if self.uses_http2() {
            None
        } else {
            Some(self.permits.clone().try_acquire_owned().ok()?)
        };
        let host = self.clone();
        Some(Connection { host, permit })
    }
}

/// Permission to have one request in flight at a host.
#[derive(Debug)]
struct Connection {
    host: Arc<Host>,
    /// `None` over HTTP/2.
    permit: Option<OwnedSemaphorePermit>,
}

/// The connections of one request: to the host of its URL, and after a redirect also to the host of
/// the response. The request keeps them during the pauses between its attempts. Otherwise a worker
/// with memory for a decoder could wait for other workers, and these for the same memory.
#[derive(Debug)]
pub(crate) struct RequestPermits {
    named: Option<Connection>,
    redirected: Option<Connection>,
}

impl ConnectionLimits {
    /// Makes the limits of `count` connections to each host, at least one.
    pub(crate) fn new(count: usize) -> ConnectionLimits {
        let count = count.clamp(1, Semaphore::MAX_PERMITS);
        ConnectionLimits {
            count,
            prefetch_permits: Arc::new(Semaphore::new(count - 1)),
            hosts: Mutex::default(),
        }
    }

    fn host(&self, url: &Url) -> Arc<Host> {
        let name = url.origin().ascii_serialization();
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let host = hosts.entry(name.clone()).or_insert_with(|| {
            Arc::new(Host {
                name,
                permits: Arc::new(Semaphore::new(self.count)),
                uses_http2: AtomicBool::new(false),
            })
        });
        host.clone()
    }

    /// Records whether the host of a URL speaks HTTP/2. A remembered value may be out of date.
    pub(crate) fn set_http2(&self, url: &Url, version: Version) {
        let uses_http2 = version == Version::HTTP_2;
        self.host(url)
            .uses_http2
            .store(uses_http2, Ordering::Relaxed);
    }

    /// Whether the host of a URL speaks HTTP/2, as far as is known.
    pub(crate) fn uses_http2(&self, url: &Url) -> bool {
        self.host(url).uses_http2()
    }

    /// Waits for a connection. Requests get connections in their order.
    pub(crate) async fn acquire(&self, url: &Url) -> RequestPermits {
        let host = self.host(url);
        let named = if host.uses_http2() {
            Connection { host, permit: None }
        } else {
            host.acquire().await
        };
        RequestPermits {
            named: Some(named),
            redirected: None,
        }
    }

    /// Returns a connection for a prefetched body, or `None` if only the last one is free.
    pub(crate) fn try_acquire_prefetch(
        &self,
        url: &Url,
    ) -> Option<(RequestPermits, OwnedSemaphorePermit)> {
        let prefetch = self.prefetch_permits.clone().try_acquire_owned().ok()?;
        let permits = RequestPermits {
            named: Some(self.host(url).try_acquire()?),
            redirected: None,
        };
        Some((permits, prefetch))
    }

    /// Waits for a connection to the host to which a redirect leads.
    pub(crate) async fn acquire_redirected(&self, permits: &mut RequestPermits, url: &Url) {
        let host = self.host(url);
        if permits.holds(&host) {
            return;
        }
        // Another redirect led to this host.
        permits.redirected = None;
        if let Some(connection) = host.try_acquire() {
            permits.redirected = Some(connection);
            return;
        }
        let is_before = |named: &mut Connection| named.host.name > host.name;
        let returned = permits.named.take_if(is_before).map(|named| named.host);
        permits.redirected = Some(host.acquire().await);
        if let Some(named) = returned {
            permits.named = Some(named.acquire().await);
        }
    }

    /// Records the version of the host that sent a response, and returns a connection that the
    /// request does not need because of HTTP/2.
    pub(crate) fn observe(&self, permits: &mut RequestPermits, response: &Response) {
        self.set_http2(response.url(), response.version());
        for held in [&mut permits.named, &mut permits.redirected] {
            if let Some(connection) = held
                && connection.host.uses_http2()
            {
                connection.permit = None;
            }
        }
    }
}

impl RequestPermits {
    /// Returns the permits of a request that has no connection yet.
    pub(crate) fn none() -> RequestPermits {
        RequestPermits {
            named: None,
            redirected: None,
        }
    }

    fn holds(&self, host: &Host) -> bool {
        let held = [&self.named, &self.redirected];
        held.into_iter()
            .flatten()
            .any(|it| it.host.name == host.name)
    }
}

/// Above this many hosts, hosts without a request in flight are forgotten. A cache can redirect
/// each request to another host.
const HOSTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn free(limits: &ConnectionLimits, url: &Url) -> usize {
        limits.host(url).permits.available_permits()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn limits_reserve_last_connection_from_prefetch() {
        let nar = url("http://cache.example.org/nar/a");
        for count in [0, 1, 2, 25] {
            let limits = ConnectionLimits::new(count);
            let mut acquired: Vec<_> =
                std::iter::from_fn(|| limits.try_acquire_prefetch(&nar)).collect();
            assert_eq!(acquired.len(), count.saturating_sub(1));
            assert_eq!(free(&limits, &nar), 1);
            // A body that a worker reads allows another prefetch, but no further connection.
            if let Some((permit, prefetch)) = acquired.pop() {
                drop(prefetch);
                let (last, _) = limits.try_acquire_prefetch(&nar).unwrap();
                assert!(limits.try_acquire_prefetch(&nar).is_none());
                drop((permit, last));
                assert_eq!(free(&limits, &nar), 2);
            }
        }
    }

    #[test]
    fn prefetched_bodies_of_all_caches_share_one_limit() {
        let limits = ConnectionLimits::new(3);
        let [a, b] = ["http://a.example.org/", "http://b.example.org/"].map(url);
        let first = limits.try_acquire_prefetch(&a).unwrap();
        let second = limits.try_acquire_prefetch(&b).unwrap();
        // A redirect of both may lead to one host, where a worker needs the third connection.
        assert!(limits.try_acquire_prefetch(&b).is_none());
        drop((first, second));
        assert!(limits.try_acquire_prefetch(&b).is_some());
    }

    #[test]
    fn requests_over_http2_are_not_counted() {
        let limits = ConnectionLimits::new(2);
        let [own, other] = ["https://a.example.org/deep", "https://b.example.org/"].map(url);
        limits.set_http2(&own, Version::HTTP_2);
        block_on(async {
            let mut permits = Vec::new();
            for _ in 0..100 {
                permits.push(limits.acquire(&own).await);
            }
            assert_eq!(free(&limits, &own), 2);
            let _counted = limits.acquire(&other).await;
            assert_eq!(free(&limits, &other), 1);
            limits.set_http2(&own, Version::HTTP_11);
            let _counted = limits.acquire(&own).await;
            assert_eq!(free(&limits, &own), 1);
        });
    }

    #[test]
    fn redirect_counts_at_its_own_host_once() {
        let limits = ConnectionLimits::new(2);
        let names = [
            "http://a.example.org/",
            "http://b.example.org/",
            "http://c.example.org/",
        ];
        let [a, b, c] = names.map(url);
        block_on(async {
            let mut permits = limits.acquire(&b).await;
            for _ in 0..3 {
                // Each attempt passes both hosts.
                limits.acquire_redirected(&mut permits, &a).await;
                assert_eq!([&a, &b, &c].map(|it| free(&limits, it)), [1, 1, 2]);
                limits.acquire_redirected(&mut permits, &c).await;
                assert_eq!([&a, &b, &c].map(|it| free(&limits, it)), [2, 1, 1]);
            }
            drop(permits);
            assert_eq!([&a, &b, &c].map(|it| free(&limits, it)), [2, 2, 2]);
        });
    }

    #[test]
    fn hosts_without_requests_are_forgotten() {
        let limits = ConnectionLimits::new(1);
        let used = url("http://used.example.org/");
        let held = block_on(limits.acquire(&used));
        for number in 0..3 * HOSTS_MAX {
            limits.host(&url(&format!("http://{number}.example.org/")));
            assert!(limits.hosts.lock().len() <= HOSTS_MAX);
        }
        assert_eq!(free(&limits, &used), 0);
        drop(held);
        assert_eq!(free(&limits, &used), 1);
    }

    /// Two caches with one connection each redirect to each other.
    #[test]
    fn redirects_in_a_circle_do_not_deadlock() {
        let limits = ConnectionLimits::new(1);
        let [a, b] = ["http://a.example.org/", "http://b.example.org/"].map(url);
        block_on(async {
            let (mut from_a, mut from_b) = (limits.acquire(&a).await, limits.acquire(&b).await);
            let to_b = async {
                limits.acquire_redirected(&mut from_a, &b).await;
                drop(from_a);
            };
            let to_a = async {
                limits.acquire_redirected(&mut from_b, &a).await;
                drop(from_b);
            };
            let (mut to_a, mut to_b) = (pin!(to_a), pin!(to_b));
            let mut left = [true, true];
            poll_fn(|context| {
                // Neither future wakes the other one if both wait without end.
                left[0] = left[0] && to_a.as_mut().poll(context).is_pending();
                left[1] = left[1] && to_b.as_mut().poll(context).is_pending();
                match left {
                    [false, false] => Poll::Ready(()),
                    _ => {
                        context.waker().wake_by_ref();
                        Poll::Pending
                    }
                }
            })
            .await;
        });
    }
}
