//! The start of a connection of the worker protocol, which needs no store.

use std::os::fd::OwnedFd;

use floe_format::StoreDir;
use floe_wire::worker::{DaemonError, ServerEvent, ServerInfo, ServerSession, Version};

use super::connection::Connection;
use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::stream::Stream;

/// A client that has told which version of the protocol it speaks, and waits.
#[derive(Debug)]
pub struct WorkerClient {
    session: ServerSession,
    stream: Stream,
}

impl WorkerClient {
    /// Greets a client. `version` is the name and version that it gets. Returns `None` if it ends
    /// the connection instead.
    ///
    /// Errors: those of the connection.
    pub fn greet(
        dir: &StoreDir,
        (input, output): (OwnedFd, OwnedFd),
        version: &str,
        is_trusted: bool,
    ) -> Result<Option<WorkerClient>, HostError> {
        let info = ServerInfo {
            nix_version: Some(version.to_owned()),
            trusts_client: Some(is_trusted),
        };
        let mut session = ServerSession::new(dir.clone(), info, Version::OFFERED);
        if !is_trusted {
            session.limit_requests(UNTRUSTED_REQUEST_LEN_MAX);
        }
        let mut stream = Stream::new(input, output);
        loop {
            while let Some(event) = session.next_event(&mut stream.unsent)? {
                if let ServerEvent::Opened(_) = event {
                    return Ok(Some(WorkerClient { session, stream }));
                }
            }
            stream.flush()?;
            let len = stream.read(session.space())?;
            if len == 0 {
                return Ok(None);
            }
            session.fill(len);
        }
    }

    /// Tells the client why it is not served.
    ///
    /// Errors: those of the connection.
    pub fn refuse(mut self, reason: &str) -> Result<(), HostError> {
        let error = DaemonError {
            message: reason.to_owned(),
            ..DaemonError::default()
        };
        self.session.refuse(error, &mut self.stream.unsent);
        self.stream.flush()
    }

    /// Serves a store until the client ends the connection.
    ///
    /// Errors: those of the connection. The client gets all others, and all paths that have arrived
    /// whole are registered.
    pub fn serve(self, store: &HostedStore) -> Result<(), HostError> {
        super::serve(
            store,
            &mut Connection::new(store, self.session, self.stream),
        )
    }
}

/// The longest request of a client that is not trusted, in bytes: a list of 200,000 paths.
const UNTRUSTED_REQUEST_LEN_MAX: usize = 16 * 1024 * 1024;
