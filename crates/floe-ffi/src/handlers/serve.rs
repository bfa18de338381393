//! The requests `serve` and `stop`.

use floe_format::SecretKey;
use floe_messages::{Empty, ErrorKind, ServeReply, ServeRequest, StopRequest};
use floe_server::address;
use floe_server::{Config, ServeError, Server};

use super::{HandlerContext, failed, local_store, usage};
use crate::completion::{JobError, JobOutcome, texts};
use crate::engine::{RunningServer, new_id};

impl HandlerContext<'_> {
    pub(super) fn serve(&self) -> JobOutcome {
        let request: ServeRequest<'_> = self.request()?;
        let store = local_store(request.store, request.store_dir)?;
        let listen: Result<_, _> = request.listen.iter().map(address::parse).collect();
        let listen = listen.map_err(|error| usage(error.to_string()))?;
        // The error never contains the key.
        let keys: Result<Vec<SecretKey>, _> =
            request.secret_keys.iter().map(SecretKey::parse).collect();
        let mut config = Config::new(store, listen);
        config.secret_keys = keys.map_err(|error| usage(error.to_string()))?;
        let mut server = Server::bind(config)?;
        server.prepare()?;
        let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
        let shutdown = server.shutdown_handle();
        let thread = std::thread::Builder::new()
            .name("floe-serve".into())
            .spawn(move || {
                // The server is prepared, so only threads can be refused. The server then ends, and
                // `stop` finds it ended.
                let _: Result<(), ServeError> = server.run();
            })
            .map_err(|error| {
                let text = format!("cannot start a server thread: {error}");
                failed(ErrorKind::Failed, text)
            })?;
        let id = new_id();
        self.engine
            .servers
            .lock()
            .insert(id, RunningServer { shutdown, thread });
        self.reply(&ServeReply {
            server: id,
            addresses: texts(&addresses),
        })
    }

    /// Stops a server. Running responses get ten seconds.
    pub(super) fn stop(&self) -> JobOutcome {
        let request: StopRequest = self.request()?;
        let server = self.engine.servers.lock().remove(&request.server);
        let Some(server) = server else {
            let text = format!(
                "cannot stop the server {}: this engine has no server with that handle",
                request.server
            );
            return Err(failed(ErrorKind::BadHandle, text));
        };
        server.shutdown.shutdown();
        match server.thread.join() {
            Ok(()) => self.reply(&Empty {}),
            Err(_) => Err(failed(
                ErrorKind::Failed,
                "the server has ended because of a bug in libfloe",
            )),
        }
    }
}

impl From<ServeError> for JobError {
    fn from(error: ServeError) -> JobError {
        match error {
            ServeError::Config(_) => usage(error.to_string()),
            error => failed(ErrorKind::Failed, error.to_string()),
        }
    }
}
