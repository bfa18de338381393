//! What a server is told before it starts. Plain values: the doors read flags, files and the
//! environment.

use std::fmt;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use floe_format::SecretKey;
use floe_store::StoreLayout;

/// Everything that a server can be told.
pub struct Config {
    /// The store to serve.
    pub store: StoreLayout,
    /// Where build logs lie: the directory that holds `drvs`, such as `/nix/var/log/nix`.
    pub log_dir: PathBuf,
    /// Where to listen. At least one.
    pub listen: Vec<Listen>,
    /// How many connections may wait to be accepted.
    pub backlog: u16,
    /// The keys that sign each narinfo, besides the signatures that the store has.
    pub secret_keys: Vec<SecretKey>,
    /// The priority in `nix-cache-info`: clients ask the cache with the lowest first.
    pub priority: i32,
    /// What stands in front of every route, such as `/cache`; empty if nothing does.
    pub path_prefix: String,
    /// Whether NARs go out compressed.
    pub compress: Compress,
    /// Where compressed NARs are kept. [`Compress::Cached`] needs one.
    pub compressed_cache: Option<CompressedCacheOptions>,
    /// How many threads answer requests; as many as there are cores is best.
    pub threads: NonZeroUsize,
    /// How many connections may be open at once; further ones wait in the backlog.
    pub connections_max: usize,
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// How long a connection may idle between two requests.
    pub keep_alive_timeout: Duration,
    /// How long a client may take to send the head of a request.
    pub read_timeout: Duration,
    /// How long a client may leave an answer unread, without taking any byte.
    pub write_timeout: Duration,
    /// The line that is written for each request, and where to. `None` writes nothing.
    pub access_log: Option<(LogFormat, Arc<Mutex<dyn Write + Send>>)>,
    /// Called with what the operator should know: a store that cannot be read, a broken row.
    pub warn: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Config {
    /// Serves a store as every peer does where nothing else is said: uncompressed, unsigned, a
    /// thread for each core, no log.
    pub fn new(store: StoreLayout, listen: Vec<Listen>) -> Config {
        Config {
            log_dir: store.log_dir(),
            store,
            listen,
            backlog: BACKLOG,
            secret_keys: Vec::new(),
            priority: PRIORITY,
            path_prefix: String::new(),
            compress: Compress::Off,
            compressed_cache: None,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            connections_max: CONNECTIONS_MAX,
            keep_alive: true,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            access_log: None,
            warn: Arc::new(|_| {}),
        }
    }
}

/// The priority of every peer: lower than the 40 of cache.nixos.org, so that clients ask the cache
/// nearby first.
pub const PRIORITY: i32 = 30;

/// starman's backlog, and nix-serve-ng's for Unix sockets.
pub const BACKLOG: u16 = 1024;

/// Longer than the 118 seconds for which curl, and so Nix, takes up an idle connection again: a
/// connection that the server closed meanwhile would be a failed request.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// A head is one packet. Half a minute forgives several lost ones in a row.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// nix-serve-ng's: a client may be busy unpacking for long.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// What harmonia allows with its four workers: 300 clients with the 25 connections of Nix.
pub const CONNECTIONS_MAX: usize = 8192;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP. The host is a name or an address; `*` is every address, `*4` every IPv4 address and
    /// `*6` every IPv6 address. Port 0 lets the system choose.
    Tcp {
        /// Host name, IP address (IPv6 without brackets) or one of the stars.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket at this path. A socket that is left there and that nobody listens on is
    /// replaced; anything else that is there is an error.
    Unix(PathBuf),
}

/// `HOST:PORT` as in a URL, or `unix:PATH`.
impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp { host, port } if host.contains(':') => {
                write!(formatter, "[{host}]:{port}")
            }
            Listen::Tcp { host, port } => write!(formatter, "{host}:{port}"),
            Listen::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Whether NARs go out compressed to clients that accept zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// Never.
    Off,
    /// When a compressed copy is ready in the side cache; else one is made in the background.
    Cached,
    /// Always: where no copy is ready, while it is sent.
    Always,
}

/// A directory of compressed NARs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedCacheOptions {
    /// The directory; made if it is absent. It belongs to the server.
    pub dir: PathBuf,
    /// How many bytes it may hold; the least recently used files go first.
    pub max_bytes: u64,
}

/// The lines of the access log, as nix-serve-ng names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's common log format with the peer's address.
    Apache,
    /// The same with the address that a proxy gave in `X-Real-IP` or `X-Forwarded-For`.
    RealIp,
    /// Method, target, status, bytes and time taken.
    Verbose,
}
