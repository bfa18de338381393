//! The settings of a server.
//!
//! Plain values only: the callers read flags, files and the environment.

pub mod address;

use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floe_format::SecretKey;
use floe_store::StoreLayout;

use crate::error::ServeError;
use crate::receive::Receiver;
use crate::trusted_proxies::TrustedProxies;

/// All settings of a server.
#[non_exhaustive]
pub struct Config {
    /// The store to serve.
    pub store: StoreLayout,
    /// The directory of build logs, such as `/nix/var/log/nix`. Its subdirectory `drvs` has them.
    pub log_dir: PathBuf,
    /// The addresses to listen on, at least one.
    pub listen: Vec<Listen>,
    /// The addresses to serve `/metrics` on, with `/health`, `/ready` and `/version`. If there is
    /// none, all other addresses serve `/metrics`.
    pub metrics_listen: Vec<Listen>,
    /// The addresses that redirect to HTTPS, at the port of the first TCP address of `listen`. They
    /// need `tls`.
    pub redirect_listen: Vec<Listen>,
    /// How many connections may wait to be accepted.
    pub backlog: u16,
    /// Sockets that another process listens on. They take the place of the addresses for the same
    /// use.
    pub passed_sockets: Vec<PassedSocket>,
    /// The certificates of the TCP addresses, for TLS. Without them, the server speaks plain HTTP.
    /// A Unix socket never uses TLS.
    pub tls: Option<TlsOptions>,
    /// The keys that sign each narinfo, in addition to the signatures in the store.
    pub secret_keys: Vec<SecretKey>,
    /// The priority in `nix-cache-info`. Clients prefer caches with low numbers.
    pub priority: i32,
    /// The prefix of every route, such as `/cache`; may be empty.
    pub path_prefix: String,
    /// Whether NARs are sent compressed.
    pub compress: Compress,
    /// The cache of compressed NARs. [`Compress::Cached`] needs one.
    pub compressed_cache: Option<CompressedCacheOptions>,
    /// The number of network threads, by default one for each core.
    pub threads: NonZeroUsize,
    /// The limits of connections.
    pub limits: Limits,
    /// How many NARs are compressed at once for [`Compress::Always`]. Further ones are sent
    /// uncompressed. By default, one for each network thread.
    pub encoders_max: Option<NonZeroUsize>,
    /// The format of the access log, and where it is written.
    pub access_log: Option<(LogFormat, Box<dyn LogOutput>)>,
    /// The file of the logins that clients need. Without it, they need none.
    pub auth_file: Option<PathBuf>,
    /// Whether clients without a login may read the cache although there are logins.
    pub public_read: bool,
    /// Whether there is no page at `/`, which tells people how to use the cache.
    pub no_landing_page: bool,
    /// Whether those who may read may look at the paths of the store. Without it, only logins of
    /// the scope `status` may.
    pub status_browse: bool,
    /// Whether browsers get this page as text, too.
    pub plain_landing_page: bool,
    /// The directory of a binary cache whose pins are served. Without it, there are none.
    pub pins: Option<PathBuf>,
    /// The place that receives uploads. Without it, the server receives none.
    pub receiver: Option<Arc<dyn Receiver>>,
    /// Called with each warning for the operator.
    pub warn: Warn,
}

/// A listening socket of another process, such as the service manager.
#[derive(Debug)]
pub struct PassedSocket {
    /// The socket, for streams of TCP or Unix.
    pub socket: OwnedFd,
    /// Its use.
    pub used_for: SocketUse,
}

/// The uses of listening sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketUse {
    /// As [`Config::listen`].
    Clients,
    /// As [`Config::metrics_listen`].
    Monitoring,
    /// As [`Config::redirect_listen`].
    Redirect,
}

/// The settings that connections need.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// How many connections may be open at once. Further ones get a 503.
    pub connections_max: NonZeroUsize,
    /// How many connections one address may have. Without it, the limit is three times the number
    /// of free connections. At least 32 are always allowed. For IPv6 the first 64 bits count.
    pub connections_per_address_max: Option<NonZeroUsize>,
    /// The proxies whose field `X-Forwarded-For` names the client of a request. The limit of the
    /// connections of one address does not apply to them.
    pub trusted_proxies: TrustedProxies,
    /// Whether each connection of a trusted proxy to an address of [`Config::listen`] begins with a
    /// header of the PROXY protocol, version 1 or 2.
    pub proxy_protocol: bool,
    /// How many requests a connection may serve before the server closes it; any number without it.
    pub requests_per_connection_max: Option<NonZeroUsize>,
    /// The longest head of a request in bytes.
    pub head_len_max: usize,
    /// A client that takes fewer bytes of a response per second is slow.
    pub rate_min: u64,
    /// Whether a connection may serve more than one request.
    pub keep_alive: bool,
    /// How long a connection may be idle between two requests.
    pub keep_alive_timeout: Duration,
    /// How long a client may take to send the head of a request.
    pub read_timeout: Duration,
    /// How long a client may take no byte of a response.
    pub write_timeout: Duration,
    /// How long responses may take to end when the server stops.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: None,
            trusted_proxies: TrustedProxies::default(),
            proxy_protocol: false,
            requests_per_connection_max: None,
            head_len_max: HEAD_LEN_MAX,
            rate_min: RATE_MIN,
            keep_alive: true,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            stop_timeout: STOP_TIMEOUT,
        }
    }
}

/// Where the lines of the access log are written.
pub trait LogOutput: Write + Send {
    /// Opens the output anew, because another program has renamed its file.
    ///
    /// Errors: the output cannot be opened, and stays as it was.
    fn reopen(&mut self) -> io::Result<()>;
}

/// A function that shows a warning to the operator.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

impl Config {
    /// The settings for a store and the addresses to listen on. All others have defaults: no
    /// signatures, no compression, no access log, the values of the constants in this module.
    pub fn new(store: StoreLayout, listen: Vec<Listen>) -> Config {
        Config {
            log_dir: store.log_dir(),
            store,
            listen,
            metrics_listen: Vec::new(),
            redirect_listen: Vec::new(),
            backlog: BACKLOG,
            passed_sockets: Vec::new(),
            tls: None,
            secret_keys: Vec::new(),
            priority: PRIORITY,
            path_prefix: String::new(),
            compress: Compress::Off,
            compressed_cache: None,
            threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limits: Limits::default(),
            encoders_max: None,
            access_log: None,
            auth_file: None,
            public_read: false,
            no_landing_page: false,
            status_browse: false,
            plain_landing_page: false,
            pins: None,
            receiver: None,
            warn: Arc::new(|_| {}),
        }
    }

    /// Returns how many open files the server needs to serve one client. Each further client needs
    /// up to four.
    pub fn open_files_min(&self) -> u64 {
        let threads = self.threads.get();
        let files = threads * FILES_PER_THREAD + workers(threads) * FILES_PER_WORKER;
        (files + self.addresses_len() + OTHER_FILES) as u64
    }

    fn addresses_len(&self) -> usize {
        self.listen.len() + self.metrics_listen.len() + self.redirect_listen.len()
    }

    fn redirects(&self) -> bool {
        let mut passed = self.passed_sockets.iter();
        !self.redirect_listen.is_empty() || passed.any(|it| it.used_for == SocketUse::Redirect)
    }

    /// Checks that the settings fit together.
    ///
    /// Errors: [`ServeError::Config`].
    pub(crate) fn check(&self) -> Result<(), ServeError> {
        if self.listen.is_empty() {
            return Err(ServeError::Config(
                "cannot start a server: no address to listen on is given",
            ));
        }
        if self
            .tls
            .as_ref()
            .is_some_and(|tls| tls.certificates.is_empty())
        {
            return Err(ServeError::Config(
                "cannot use TLS: no certificate is given",
            ));
        }
        if self.redirects() && self.tls.is_none() {
            return Err(ServeError::Config(
                "cannot redirect to HTTPS: the server has no certificate; try --tls-cert FILE",
            ));
        }
        if self.limits.head_len_max < HEAD_LEN_LEAST {
            return Err(ServeError::Config(
                "cannot limit heads to so few bytes: no request would be accepted; try \
                 --max-header-size 16K",
            ));
        }
        if self.limits.proxy_protocol && self.limits.trusted_proxies.is_empty() {
            return Err(ServeError::Config(
                "cannot use the PROXY protocol: no proxy is trusted; try --trusted-proxy ADDRESS",
            ));
        }
        if self.compress == Compress::Cached && self.compressed_cache.is_none() {
            return Err(ServeError::Config(
                "cannot cache compressed NARs: no directory for them is given",
            ));
        }
        Ok(())
    }
}

/// Returns the number of workers for a number of network threads.
pub(crate) fn workers(threads: usize) -> usize {
    (threads * WORKERS_PER_THREAD).max(WORKERS_MIN)
}

/// Workers mostly wait for disks, and a disk serves several requests at once.
const WORKERS_PER_THREAD: usize = 4;
const WORKERS_MIN: usize = 8;

/// Two for events, and the database with its log.
const FILES_PER_THREAD: usize = 4;

/// The database and its log.
const FILES_PER_WORKER: usize = 2;

/// The standard streams, the access log, a connection, the path and the files that it sends, and
/// some for the system's libraries.
const OTHER_FILES: usize = 15;

/// The default port of a server, as of nix-serve and harmonia.
pub const PORT: u16 = 5000;

/// The default host of `floe serve`: only programs on this machine can connect. Every client that
/// can connect can read every path, so the operator decides about other addresses.
pub const HOST: &str = "127.0.0.1";

/// The default of [`Config::priority`], as of nix-serve and harmonia. It is lower than the 40 of
/// cache.nixos.org, so clients prefer the cache nearby.
pub const PRIORITY: i32 = 30;

/// The default of [`Config::backlog`], as of starman, and of nix-serve-ng for Unix sockets.
pub const BACKLOG: u16 = 1024;

/// The default of [`Limits::keep_alive_timeout`]. curl, and so Nix, reuses a connection that was
/// idle for up to 118 seconds. If the server closed it before, that request would fail.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// The default of [`Limits::read_timeout`]. A head is one packet, so this allows for several lost
/// packets in a row.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The default of [`Limits::write_timeout`], as of nix-serve-ng. A client may unpack for a long
/// time before it reads on.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(600);

/// The default of [`Limits::stop_timeout`]: longer than most responses take.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The default of [`Limits::connections_max`], as of harmonia with four workers. It is enough for
/// 300 clients with the 25 connections of Nix.
pub const CONNECTIONS_MAX: NonZeroUsize = NonZeroUsize::new(8192).expect("8192 is not 0");

/// The default of [`Limits::head_len_max`]. Browsers and proxies send less than 8 KiB.
pub const HEAD_LEN_MAX: usize = 16 * 1024;

/// The smallest [`Limits::head_len_max`]. Nix sends about 200 bytes, and a login some hundreds.
const HEAD_LEN_LEAST: usize = 1024;

/// The default of [`Limits::rate_min`]. A telephone line takes five times as much.
pub const RATE_MIN: u64 = 1024;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// TCP.
    Tcp {
        /// A name, or an IP address (IPv6 without brackets). `*` stands for every address, `*4` for
        /// every IPv4 address, `*6` for every IPv6 address.
        host: String,
        /// The port. If it is 0, the system chooses one.
        port: u16,
    },
    /// A Unix socket at this path. The server replaces a stale socket, on which no process listens.
    /// Any other file at the path is an error.
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

/// The files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// The certificates, at least one. A client gets the first one for the name that it asks for,
    /// or else the first one.
    pub certificates: Vec<CertificateFiles>,
    /// A PEM file with the certificates of authorities. If it is given, each client must have a
    /// certificate that one of them has issued.
    pub client_ca: Option<PathBuf>,
    /// Whether the server starts with certificates that are not valid now, with a warning for each
    /// of them.
    pub accepts_invalid_now: bool,
}

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// A PEM file with the certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

/// Whether NARs are sent compressed to clients that accept zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// Never.
    Off,
    /// If the NAR is in the cache of compressed NARs. Otherwise it is compressed in the background.
    Cached,
    /// Always. A NAR that is not in the cache is compressed while it is sent.
    Always,
}

/// The cache of compressed NARs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedCacheOptions {
    /// The directory, which the server makes if it is absent. The server alone may write to it.
    pub dir: PathBuf,
    /// The largest size of all files in bytes. The least recently used files are removed first.
    pub max_bytes: u64,
}

/// The formats of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's common log format, with the address of the peer.
    Common,
    /// Apache's combined log format: the same with referrer and user agent.
    Combined,
    /// The combined format with the address in `X-Real-IP` or `X-Forwarded-For` of a proxy.
    RealIp,
    /// Method, target, status, bytes and time taken; at last the reason of a refusal.
    Verbose,
    /// A JSON object.
    Json,
}
