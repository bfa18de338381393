//! The thread on which all requests run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use floe_transfer::{Cancel, Error, Event, EventSink as _, Events, Service, Session};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use floe_format::Netrc;

use super::auth::read_netrc_files;
use super::failure::NO_ISSUER;
use super::request_options::RequestOptions;
use super::sign::Sign;
use crate::narinfo_disk_cache::NarInfoDiskCache;
use crate::network::ClientCertificate;
use crate::network::client::{Clients, INVALID_CERT_TEXT};
use crate::network::limiter::ConnectionLimits;
use crate::network::upload_limits::UPLOADS_LEN;
use crate::network::{AwsOptions, NetworkOptions};

/// The clients and the options of all requests of a copy.
#[derive(Debug)]
pub(super) struct HttpContext {
    pub(super) clients: Arc<Clients>,
    /// The contents of the netrc files.
    pub(super) netrc: Arc<[Netrc]>,
    /// The reason why the clients trust no certificate, if it could not read them.
    certificate_error: Option<String>,
    pub(super) options: NetworkOptions,
    pub(super) events: Events,
    /// Signs the requests to the cache.
    pub(super) signer: Option<Arc<dyn Sign>>,
    /// The connections to all hosts.
    pub(super) limits: Arc<ConnectionLimits>,
    /// Permits for the chunks of all large bodies that wait for their workers.
    pub(super) waiting_chunks: Arc<Semaphore>,
    /// Permits for the memory of all uploads, in KiB.
    pub(super) upload_memory: Arc<Semaphore>,
    /// The connections of writes to all hosts. A write must not wait for a body of the same host
    /// whose worker waits for the write.
    pub(super) write_limits: Arc<ConnectionLimits>,
    /// The uploads whose parts must be deleted if the copy ends.
    pub(crate) open_uploads: OpenUploads,
    /// Ends the waits of workers.
    pub(super) cancel: Cancel,
    /// Runs tasks on the network thread. They are dropped when the thread ends.
    pub(super) handle: Handle,
}

impl HttpContext {
    /// Returns the context for the requests to a cache, with the certificate and the options in its
    /// URI, and its signatures.
    ///
    /// Errors: [`Error::File`] if the client certificate cannot be used.
    pub(super) fn for_cache(
        self: &Arc<HttpContext>,
        certificate: Option<&ClientCertificate>,
        requests: &RequestOptions,
        signer: Option<Arc<dyn Sign>>,
    ) -> Result<Arc<HttpContext>, Error> {
        let is_plain = certificate.is_none() && signer.is_none();
        if is_plain && *requests == RequestOptions::default() {
            return Ok(self.clone());
        }
        let options = requests.apply(&self.options);
        let needs_clients =
            certificate.is_some() || options.connect_timeout != self.options.connect_timeout;
        let (clients, certificate_error) = match needs_clients {
            true => {
                let (clients, error) = Clients::new(&options, &self.events, certificate)?;
                (Arc::new(clients), error)
            }
            false => (self.clients.clone(), self.certificate_error.clone()),
        };
        Ok(Arc::new(HttpContext {
            clients,
            netrc: self.netrc.clone(),
            certificate_error,
            options,
            events: self.events.clone(),
            signer,
            limits: self.limits.clone(),
            waiting_chunks: self.waiting_chunks.clone(),
            upload_memory: self.upload_memory.clone(),
            write_limits: self.write_limits.clone(),
            open_uploads: self.open_uploads.clone(),
            cancel: self.cancel.clone(),
            handle: self.handle.clone(),
        }))
    }

    /// Reports that a request is repeated.
    pub(super) fn report_retry(&self, error: &Error) {
        self.events.event(Event::Retrying { path: None, error });
    }

    /// Adds the certificate error to the error of a request that failed because of it, or else the
    /// remedy for an unknown authority.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        if let Error::Fetch { reason, .. } = &mut error
            && reason.contains(INVALID_CERT_TEXT)
        {
            match &self.certificate_error {
                Some(why) => *reason += &format!(" ({why})"),
                None if reason.contains(NO_ISSUER) => *reason += AUTHORITY_ADVICE,
                None => {}
            }
        }
        error
    }
}

/// The thread on which all requests of a copy run, and the narinfo disk cache of all caches.
/// Dropping it ends the requests.
#[derive(Debug)]
pub struct Network {
    pub(super) context: Arc<HttpContext>,
    stop: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
    disk_cache: Option<Arc<NarInfoDiskCache>>,
}

impl Service for Network {
    type Options = NetworkOptions;

    /// Starts the thread, reads the netrc files, and opens the disk cache.
    ///
    /// Errors: [`CacheError::Proxy`](crate::CacheError::Proxy), and [`Error::Fetch`] if the client
    /// cannot be set up.
    fn start(options: &NetworkOptions, session: &Session) -> Result<Network, Error> {
        let failed = |reason: String| Error::fetch("(setting up the network)", reason, false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let (clients, certificate_error) = Clients::new(options, &session.events, None)?;
        let (netrc, unusable) = read_netrc_files(&options.netrc);
        for error in &unusable {
            session.events.event(Event::UnusableNetrc { error });
        }
        let context = Arc::new(HttpContext {
            clients: clients.into(),
            netrc: netrc.into(),
            certificate_error,
            options: options.clone(),
            events: session.events.clone(),
            signer: None,
            limits: Arc::new(ConnectionLimits::new(options.connections)),
            waiting_chunks: Arc::new(Semaphore::new(WAITING_CHUNKS_MAX)),
            upload_memory: Arc::new(Semaphore::new(UPLOADS_LEN / 1024)),
            write_limits: Arc::new(ConnectionLimits::new(options.connections)),
            open_uploads: OpenUploads::default(),
            cancel: session.cancel.clone(),
            handle: runtime.handle().clone(),
        });
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("floe-network".into())
            .spawn(move || {
                runtime.block_on(stopped.notified());
                // Does not wait for name lookups, which may hang for long.
                runtime.shutdown_background();
            })
            .map_err(|error| failed(error.to_string()))?;
        let disk_cache = options.narinfo_disk_cache.as_ref();
        Ok(Network {
            context,
            stop,
            thread: Mutex::new(Some(thread)),
            disk_cache: disk_cache.and_then(NarInfoDiskCache::open).map(Arc::new),
        })
    }

    /// Ends all requests and waits for the end of the thread. Afterwards no task holds a reference
    /// to a cache, nor to the disk cache, whose rows would be lost if the process ended before.
    fn shut_down(&self) {
        self.context.open_uploads.wait_for_end(CLEAN_UP_TIME);
        self.abort();
        let mut handle = self.thread.lock();
        if let Some(thread) = handle.take() {
            // A task may drop the last owner. The thread cannot wait for its own end.
            if thread.thread().id() != thread::current().id() {
                let _: thread::Result<()> = thread.join();
            }
        }
    }
}

impl Network {
    /// Returns the narinfo disk cache, if there is one.
    pub fn disk_cache(&self) -> Option<Arc<NarInfoDiskCache>> {
        self.disk_cache.clone()
    }

    /// Returns the environment of AWS.
    pub(crate) fn aws_options(&self) -> &AwsOptions {
        &self.context.options.aws
    }

    /// Ends all requests. Workers that wait for a body get an error.
    fn abort(&self) {
        self.stop.notify_one();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shut_down();
    }
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

/// How long the end of a session waits until the parts of broken uploads are deleted.
const CLEAN_UP_TIME: Duration = Duration::from_secs(3);

/// Chunks of large bodies that may wait in memory beyond one per body: 8 for each of 8 bodies (4
/// being read, 4 prefetched), about 25 MiB. More workers compete for the processor, so their bodies
/// gain nothing from longer queues.
const WAITING_CHUNKS_MAX: usize = 64;

const AUTHORITY_ADVICE: &str = "; name the file of the authority in SSL_CERT_FILE or ssl-cert-file";
