//! The thread on which all requests run.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

use floe_transfer::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::auth::{AuthenticatedClient, Credentials};
use super::client::{self, INVALID_CERT_TEXT};
use crate::narinfo_disk_cache::NarInfoDiskCache;
use crate::options::NetworkOptions;

/// The client and the options of all requests of a copy.
#[derive(Debug)]
pub(super) struct HttpContext {
    pub(super) client: AuthenticatedClient,
    /// The reason why the client trusts no certificate, if it could not read them.
    certificate_error: Option<String>,
    pub(super) options: NetworkOptions,
    handle: Handle,
}

impl HttpContext {
    /// Adds the certificate error to the error of a request that failed because of it.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        if let (Error::Fetch { reason, .. }, Some(why)) = (&mut error, &self.certificate_error)
            && reason.contains(INVALID_CERT_TEXT)
        {
            *reason = format!("{reason} ({why})");
        }
        error
    }

    /// Runs a task on the network thread. The task is dropped when the thread ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

/// The thread on which all requests of a copy run. Dropping it ends the requests.
#[derive(Debug)]
pub struct Network {
    context: Arc<HttpContext>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Network {
    /// Starts the thread.
    ///
    /// Errors: [`Error::Proxy`], and [`Error::Fetch`] if the client cannot be set up.
    pub fn start(options: &NetworkOptions) -> Result<Network, Error> {
        let failed = |reason: String| Error::fetch("(setting up the network)", reason, false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let (client, certificate_error) = client::client(options)?;
        // The caller reports unusable files: see `unusable_netrc_files`.
        let (credentials, _) = Credentials::read(&options.netrc);
        let context = Arc::new(HttpContext {
            client: AuthenticatedClient::new(client, credentials),
            certificate_error,
            options: options.clone(),
            handle: runtime.handle().clone(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("floe-network".into())
            .spawn(move || {
                // An error means that the sender was dropped, which ends the thread as well.
                let _: Result<(), _> = runtime.block_on(stopped);
                // Does not wait for name lookups, which may hang for long.
                runtime.shutdown_background();
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Network {
            context,
            stop: Mutex::new(Some(stop)),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn context(&self) -> Arc<HttpContext> {
        self.context.clone()
    }

    /// Ends all requests. Workers that wait for a body get an error.
    pub(crate) fn abort(&self) {
        let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stop) = stop.take() {
            let _: Result<(), ()> = stop.send(());
        }
    }
}

impl Network {
    /// Ends all requests and waits for the end of the thread. Afterwards no task holds a reference
    /// to a cache.
    fn shut_down(&self) {
        self.abort();
        let mut handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = handle.take() {
            // A task may drop the last owner. The thread cannot wait for its own end.
            if thread.thread().id() != thread::current().id() {
                let _: thread::Result<()> = thread.join();
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The network and the narinfo disk cache of a copy, which all its caches share. Both start with
/// the first cache that needs them.
#[derive(Debug)]
pub struct LazyNetwork {
    options: NetworkOptions,
    started: OnceLock<(Arc<Network>, Option<Arc<NarInfoDiskCache>>)>,
}

impl LazyNetwork {
    /// Keeps the options for the start.
    pub fn new(options: &NetworkOptions) -> LazyNetwork {
        LazyNetwork {
            options: options.clone(),
            started: OnceLock::new(),
        }
    }

    /// Ends all requests and waits for the end of the network thread. A task of the thread may hold
    /// the last reference to the disk cache; its rows would be lost if the process ended before.
    pub fn shut_down(&self) {
        if let Some((network, _)) = self.started.get() {
            network.shut_down();
        }
    }

    /// Returns the network and the disk cache, if there is one. Starts them before the first use.
    ///
    /// Errors: those of [`Network::start`].
    pub fn get(&self) -> Result<(Arc<Network>, Option<Arc<NarInfoDiskCache>>), Error> {
        if let Some(started) = self.started.get() {
            return Ok(started.clone());
        }
        let network = Arc::new(Network::start(&self.options)?);
        let disk_cache = self.options.narinfo_disk_cache.as_ref();
        let disk_cache = disk_cache.and_then(NarInfoDiskCache::open).map(Arc::new);
        Ok(self.started.get_or_init(|| (network, disk_cache)).clone())
    }
}
