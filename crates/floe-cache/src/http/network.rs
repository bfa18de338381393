//! The thread on which all requests run.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use floe_transfer::Error;
use reqwest::Client;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::auth::Credentials;
use super::client::{self, INVALID_CERT_TEXT};
use crate::options::NetworkOptions;

/// What requests are made with.
#[derive(Debug)]
pub(super) struct HttpContext {
    pub(super) client: Client,
    pub(super) credentials: Credentials,
    /// Why no certificate is believed, where the file of them cannot be used.
    certificate_error: Option<String>,
    pub(super) options: NetworkOptions,
    handle: Handle,
}

impl HttpContext {
    /// Where no certificates could be read, that is why a server's was not believed.
    pub(super) fn explain(&self, mut error: Error) -> Error {
        if let (Error::Fetch { reason, .. }, Some(why)) = (&mut error, &self.certificate_error)
            && reason.contains(INVALID_CERT_TEXT)
        {
            *reason = format!("{reason} ({why})");
        }
        error
    }

    /// Runs on the network's thread, until that ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

/// The thread on which all requests of a move run. Dropping it ends them.
#[derive(Debug)]
pub struct Network {
    context: Arc<HttpContext>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Starts the thread. Errors: the client cannot be set up.
    pub fn start(options: &NetworkOptions) -> Result<Network, Error> {
        let failed = |reason: String| Error::fetch("(setting up the network)", reason, false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let (client, certificate_error) = client::client(options)?;
        let context = Arc::new(HttpContext {
            client,
            certificate_error,
            // Whose files cannot be used, `unusable_netrc_files` has told.
            credentials: Credentials::read(&options.netrc).0,
            options: options.clone(),
            handle: runtime.handle().clone(),
        });
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("floe-network".into())
            .spawn(move || {
                // An error says that the sender is gone, which means the same.
                let _: Result<(), _> = runtime.block_on(stopped);
                // A look-up of a name may hang for long, and nobody needs its answer.
                runtime.shutdown_background();
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(Network {
            context,
            stop: Mutex::new(Some(stop)),
            thread: Some(thread),
        })
    }

    pub(super) fn context(&self) -> Arc<HttpContext> {
        self.context.clone()
    }

    /// Ends all requests: who waits for a body learns that it was abandoned.
    pub fn abort(&self) {
        let stop = self
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(stop) = stop {
            let _: Result<(), ()> = stop.send(());
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.abort();
        if let Some(thread) = self.thread.take() {
            let _: thread::Result<()> = thread.join();
        }
    }
}
