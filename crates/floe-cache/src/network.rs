//! The network of a session: clients, TLS, name lookups, proxies, and the limits that all requests
//! share. It knows no cache and no kind of server.

pub(crate) mod cancellation;
pub(crate) mod client;
mod connect_timer;
mod dns;
pub(crate) mod host_health;
pub(crate) mod limiter;
mod netrc;
pub mod options;
mod pace;
mod proxies;
pub(crate) mod tls;
pub(crate) mod upload_limits;

pub use options::{NarInfoDiskCacheOptions, NetworkOptions};
pub use proxies::{Proxies, ProxyVar};
pub use tls::ClientCertificate;

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::Netrc;
use floe_transfer::{Cancel, Error, Event, EventSink as _, Events, Service, Session};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

use cancellation::Cancellation;
use client::Clients;
use host_health::HostHealths;
use limiter::ConnectionLimits;
use netrc::read_netrc_files;
use upload_limits::UPLOADS_LEN;

use crate::error::CacheError;

/// The part of the network that all requests of a session share.
#[derive(Debug)]
pub(crate) struct NetworkShared {
    /// The clients of the requests without a certificate or a timeout of their own.
    pub(crate) clients: Arc<Clients>,
    pub(crate) options: NetworkOptions,
    /// The contents of the netrc files.
    pub(crate) netrc: Arc<[Netrc]>,
    pub(crate) events: Events,
    /// Which hosts answer, and how fast they get requests.
    pub(crate) host_healths: HostHealths,
    /// The connections to all hosts.
    pub(crate) limits: ConnectionLimits,
    /// The connections of writes to all hosts. A write must not wait for a body of the same host
    /// whose worker waits for the write.
    pub(crate) write_limits: ConnectionLimits,
    /// Permits for the chunks of all large bodies that wait for their workers.
    pub(crate) waiting_chunks: Arc<Semaphore>,
    /// Permits for the memory of all uploads, in KiB.
    pub(crate) upload_memory: Arc<Semaphore>,
    /// The uploads whose parts must be deleted if the copy ends.
    pub(crate) open_uploads: OpenUploads,
    /// Ends the waits of workers.
    pub(crate) cancel: Cancel,
    /// The cancellation, for tasks on the network threads.
    pub(crate) cancellation: Cancellation,
    /// Runs tasks on the network threads. They are dropped when the threads end.
    pub(crate) handle: Handle,
}

impl NetworkShared {
    /// Reports that a request is repeated.
    pub(crate) fn report_retry(&self, error: &Error) {
        self.events.event(Event::Retrying { path: None, error });
    }
}

/// The threads on which all requests of a copy run. Dropping it ends the requests.
#[derive(Debug)]
pub struct Network {
    pub(crate) shared: Arc<NetworkShared>,
    runtime: Mutex<Option<Runtime>>,
}

impl Service for Network {
    type Options = NetworkOptions;

    /// Starts the threads, and reads the netrc files.
    ///
    /// Errors: [`CacheError::Proxy`] and [`CacheError::SetUp`].
    fn start(options: &NetworkOptions, session: &Session) -> Result<Network, Error> {
        let failed = |error: io::Error| CacheError::SetUp {
            what: "the network",
            reason: error.to_string(),
        };
        let wanted = options.threads.unwrap_or_else(default_threads);
        let threads = allowed_threads(wanted).map_err(failed)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.get())
            .thread_name("floe-network")
            .enable_all()
            .build()
            .map_err(failed)?;
        let clients = Clients::new(options, &session.events, None)?;
        let (netrc, unusable) = read_netrc_files(&options.netrc);
        for error in &unusable {
            session.events.event(Event::UnusableNetrc { error });
        }
        let shared = Arc::new(NetworkShared {
            clients: clients.into(),
            netrc: netrc.into(),
            options: options.clone(),
            events: session.events.clone(),
            host_healths: HostHealths::default(),
            limits: ConnectionLimits::new(options.connections),
            write_limits: ConnectionLimits::new(options.connections),
            waiting_chunks: Arc::new(Semaphore::new(WAITING_CHUNKS_MAX)),
            upload_memory: Arc::new(Semaphore::new(UPLOADS_LEN / 1024)),
            open_uploads: OpenUploads::default(),
            cancel: session.cancel.clone(),
            cancellation: Cancellation::watch(&session.cancel, runtime.handle()),
            handle: runtime.handle().clone(),
        });
        Ok(Network {
            shared,
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// Ends all requests and waits for the end of the threads. Workers that wait for a body get an
    /// error. Afterwards no task holds a reference to a cache, whose remembered replies would be
    /// lost if the process ended before.
    fn shut_down(&self) {
        self.shared.open_uploads.wait_for_end(CLEAN_UP_TIME);
        let Some(runtime) = self.runtime.lock().take() else {
            return;
        };
        if Handle::try_current().is_ok() {
            // A task drops the last owner. Its thread cannot wait for its own end.
            runtime.shutdown_background();
        } else {
            runtime.shutdown_timeout(SHUTDOWN_TIME);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// One thread copies 2 to 3 GB per second out of the kernel, which is enough for the hashes and
/// files of about four cores.
fn default_threads() -> NonZeroUsize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = (cores / CORES_PER_THREAD).clamp(THREADS_MIN, THREADS_MAX);
    NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN)
}

/// Returns how many threads the system allows, up to `wanted`. The runtime would panic without its
/// threads.
///
/// Errors: the system allows none.
fn allowed_threads(wanted: NonZeroUsize) -> io::Result<NonZeroUsize> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let closed = gate.lock();
        let mut allowed = 0;
        let mut failure = io::Error::from(io::ErrorKind::WouldBlock);
        for _ in 0..wanted.get() {
            match thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())) {
                Ok(_) => allowed += 1,
                Err(error) => failure = error,
            }
        }
        drop(closed);
        NonZeroUsize::new(allowed).ok_or(failure)
    })
}

/// The number of uploads in parts that have begun and not ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenUploads(Arc<AtomicUsize>);

/// An upload that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct OpenUpload(OpenUploads);

impl OpenUploads {
    pub(crate) fn begin(&self) -> OpenUpload {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenUpload(self.clone())
    }

    /// Waits until no upload is open, for a time at most.
    fn wait_for_end(&self, most: Duration) {
        let began = Instant::now();
        while self.0.load(Ordering::Relaxed) > 0 && began.elapsed() < most {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for OpenUpload {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The number of cores for which a network thread reads.
const CORES_PER_THREAD: usize = 4;

/// The smallest number of network threads by default: small replies need not wait for large bodies.
const THREADS_MIN: usize = 2;

/// The largest number of network threads by default.
const THREADS_MAX: usize = 4;

/// How long the end of a session waits for the end of its tasks, which takes longer only if a name
/// lookup hangs.
const SHUTDOWN_TIME: Duration = Duration::from_millis(300);

/// How long the end of a session waits until the parts of broken uploads are deleted.
const CLEAN_UP_TIME: Duration = Duration::from_secs(3);

/// Chunks of large bodies that may wait in memory beyond one per body: 8 for each of 8 bodies (4
/// being read, 4 prefetched), about 25 MiB. More workers compete for the processor, so their bodies
/// gain nothing from longer queues.
const WAITING_CHUNKS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_allows_the_usual_number_of_threads() {
        let threads = default_threads();
        assert!((THREADS_MIN..=THREADS_MAX).contains(&threads.get()));
        assert_eq!(allowed_threads(threads).unwrap(), threads);
    }
}
