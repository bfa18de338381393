//! The URI of a daemon on this machine: `daemon` or `unix://SOCKET`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StoreDir;
use floe_store::StoreLayout;
use floe_transfer::store_uri::percent_decode_text;
use floe_transfer::{
    Error, IgnoredParameter, OpenTarget, Session, Source, SourceContext, StoreConfig, StoreFacts,
    StoreUri, TargetContext, UriContext, UriParameters,
};
use floe_wire::Protocol;

use crate::connection::{Connection, DaemonAddress, Open, parse_compression};
use crate::error::RemoteError;
use crate::source::{RemoteSource, RemoteSourceOptions, notify};
use crate::stream::Stream;
use crate::writer::{RemoteTarget, RemoteTargetOptions};

/// The store behind a daemon on this machine, as its URI describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonUri {
    socket: PathBuf,
    /// The directories of the daemon's store, as far as links into it need them.
    layout: StoreLayout,
    /// Whether to compress the connection to another floe: a socket may be forwarded.
    compresses: bool,
    options: RemoteSourceOptions,
    ignored: Vec<IgnoredParameter>,
    /// The URI without parameters.
    name: String,
}

impl DaemonUri {
    /// Reads the parts of a URI, with Nix's parameters.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri, context: &UriContext) -> Result<DaemonUri, String> {
        let socket = match (uri.scheme.as_str(), percent_decode_text(&uri.address)?) {
            ("daemon", _) => default_socket(context),
            (_, address) if address.is_empty() => default_socket(context),
            (_, address) => PathBuf::from(address),
        };
        if !socket.is_absolute() {
            let socket = socket.display();
            return Err(format!(
                "a unix URI takes an absolute path; use unix:///{socket}"
            ));
        }
        let mut daemon = DaemonUri {
            layout: layout(context.store_dir.clone().unwrap_or_default()),
            compresses: false,
            options: RemoteSourceOptions::default(),
            ignored: Vec::new(),
            name: match uri.scheme.as_str() {
                "daemon" => "daemon".into(),
                _ => format!("unix://{}", socket.display()),
            },
            socket,
        };
        for (name, value) in &uri.parameters {
            match name.as_str() {
                "store" => {
                    let dir = StoreDir::new(value).map_err(|error| error.to_string())?;
                    daemon.layout = layout(dir);
                }
                "compression" => daemon.compresses = parse_compression(value)?,
                _ if daemon.options.set(name, value)? => {}
                other => daemon.ignored.extend(PARAMETERS.ignored(uri, other)),
            }
        }
        Ok(daemon)
    }

    /// Whether the socket is the usual one of a state directory.
    pub fn is_of(&self, state_dir: &Path) -> bool {
        self.socket == state_dir.join(DAEMON_SOCKET)
    }

    /// Whether the socket of the daemon is there.
    pub fn exists(&self) -> bool {
        self.socket.exists()
    }

    /// Returns a function that opens further connections.
    fn opener(&self, session: &Session) -> Open {
        let session = Session::new(session.cancel.clone(), session.events.clone());
        let uri = self.clone();
        Box::new(move || uri.connect(&session, || {}))
    }

    fn connect(
        &self,
        session: &Session,
        opened: impl FnOnce() + Send + 'static,
    ) -> Result<Connection, Error> {
        let stream = Stream::connect(&self.socket).map_err(|error| RemoteError::Connect {
            uri: self.name.clone(),
            reason: reason(&self.socket, &error),
        })?;
        let address = DaemonAddress {
            protocol: Protocol::Worker,
            name: self.name.clone(),
            dir: self.layout.store_dir.clone(),
            wants_compression: self.compresses,
        };
        Connection::open(stream, address, session, opened)
    }
}

fn layout(store_dir: StoreDir) -> StoreLayout {
    StoreLayout {
        real_store_dir: store_dir.as_str().into(),
        store_dir,
        ..StoreLayout::system()
    }
}

fn default_socket(context: &UriContext) -> PathBuf {
    let state = || {
        let state = context.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR));
        state.join(DAEMON_SOCKET)
    };
    context.daemon_socket.clone().unwrap_or_else(state)
}

/// Explains why a socket cannot be connected to.
fn reason(socket: &Path, error: &io::Error) -> String {
    let socket = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no socket {socket}; start nix-daemon, or use a store of your own with \
             --root DIR"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!("no daemon listens at {socket}; start nix-daemon")
        }
        io::ErrorKind::PermissionDenied => format!(
            "this user may not use {socket}; see allowed-users in nix.conf, or use a store of \
             your own with --root DIR"
        ),
        _ => format!("{socket}: {error}"),
    }
}

impl fmt::Display for DaemonUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl StoreConfig for DaemonUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            daemon_socket: Some(&self.socket),
            root_layout: Some(&self.layout),
            can_substitute: true,
            is_trusted: self.options.is_trusted,
            // The settings of this machine do not decide about the other side: only the user does.
            requires_signatures: Some(true),
            ignored_parameters: &self.ignored,
            ..StoreFacts::default()
        }
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let connection = self.connect(context.session, notify(&context.opened))?;
        let reopen = self.opener(context.session);
        let source = RemoteSource::new(connection, reopen, self.options);
        Ok(Arc::new(source))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        let connection = self.connect(context.session, || {})?;
        let open = Some(self.opener(context.session));
        let options = RemoteTargetOptions {
            dry_run: context.dry_run,
            substitutes: context.substitutes,
            requires_trust: true,
        };
        Ok(OpenTarget {
            target: Arc::new(RemoteTarget::new(connection, open, options)),
            local_store: None,
        })
    }
}

/// Nix's state directory.
const STATE_DIR: &str = "/nix/var/nix";

/// The place of the daemon's socket below the state directory.
pub const DAEMON_SOCKET: &str = "daemon-socket/socket";

/// The parameters of a daemon.
const PARAMETERS: UriParameters = UriParameters {
    used: &["compression", "priority", "store", "trusted"],
    irrelevant: &[
        "log",
        "max-connection-age",
        "max-connections",
        "path-info-cache-size",
        "read-only",
        "real",
        "require-sigs",
        "root",
        "state",
        "system-features",
        "want-mass-query",
    ],
    unsupported: &[],
};
