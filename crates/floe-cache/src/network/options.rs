//! The options of requests to binary caches, as plain values. This crate reads no environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use floe_transfer::RetryPolicy;

use super::proxies::Proxies;
use crate::service_environment::ServiceEnvironment;

/// The options of requests to binary caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// A PEM file of certificates that are trusted instead of the system's (`ssl-cert-file`).
    pub certificates: Option<PathBuf>,
    /// Files with user names and passwords of hosts (`netrc-file`). The first file that names a
    /// host is used. Absent and unusable files are ignored.
    pub netrc: Vec<PathBuf>,
    /// The largest number of connections to one host over HTTP/1.1, and so of the requests that are
    /// in flight there (`http-connections`). 0 means 1.
    pub connections: usize,
    /// The longest time until a connection exists (`connect-timeout`).
    pub connect_timeout: Option<Duration>,
    /// The longest time without new bytes before a request fails (`stalled-download-timeout`).
    pub stall_timeout: Duration,
    /// When a failed request is repeated (`filetransfer-retry-*`).
    pub retry: RetryPolicy,
    /// The number of workers that read large bodies at once. The windows of HTTP/2 depend on it.
    pub workers: usize,
    /// The number of threads that do network work (`network-threads`). `None` means as many as suit
    /// the machine.
    pub threads: Option<NonZeroUsize>,
    /// Whether HTTP/2 is offered to servers behind TLS (`http2`).
    pub http2: bool,
    /// A text that is appended to the User-Agent (`user-agent-suffix`).
    pub user_agent_suffix: String,
    /// The proxies.
    pub proxies: Proxies,
    /// The environment of the services that hold caches.
    pub services: ServiceEnvironment,
    /// The narinfo disk cache, if there is one.
    pub narinfo_disk_cache: Option<NarInfoDiskCacheOptions>,
    /// Whether sources tell of the certificates of their servers. Each response then has a copy.
    pub tells_certificates: bool,
}

/// The place of the narinfo disk cache, and how long its entries are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfoDiskCacheOptions {
    /// The SQLite file. floe creates it and its directory.
    pub file: PathBuf,
    /// How long a narinfo is valid (`narinfo-cache-positive-ttl`).
    pub positive_ttl: Duration,
    /// How long the entry of a missing path is valid (`narinfo-cache-negative-ttl`).
    pub negative_ttl: Duration,
    /// How long a `nix-cache-info` is valid (`narinfo-cache-meta-ttl`).
    pub meta_ttl: Duration,
    /// Whether replies of earlier runs are requested again. The new ones are remembered.
    pub refresh: bool,
}

impl NarInfoDiskCacheOptions {
    /// Makes options with Nix's default times.
    pub fn new(file: PathBuf) -> NarInfoDiskCacheOptions {
        NarInfoDiskCacheOptions {
            file,
            positive_ttl: Duration::from_secs(30 * 24 * 3600),
            negative_ttl: Duration::from_secs(3600),
            meta_ttl: Duration::from_secs(7 * 24 * 3600),
            refresh: false,
        }
    }
}

impl NetworkOptions {
    /// Requests the replies again that earlier runs have remembered.
    pub fn refresh(&mut self) {
        if let Some(cache) = &mut self.narinfo_disk_cache {
            cache.refresh = true;
        }
    }
}

/// Returns the limit of connections for a setting, in which 0 means "no limit".
pub fn connection_limit(connections: u64) -> usize {
    match usize::try_from(connections).unwrap_or(usize::MAX) {
        0 => CONNECTIONS_MAX,
        connections => connections.min(CONNECTIONS_MAX),
    }
}

/// Returns the limit of a time for a setting, in which 0 means "no limit".
pub fn time_limit(time: Duration) -> Option<Duration> {
    (time > Duration::ZERO).then(|| time.min(UNLIMITED))
}

/// The number of connections for "no limit": half of the files that a process may usually have
/// open.
pub const CONNECTIONS_MAX: usize = 512;

/// The time for "no limit": a year, so that every deadline is a time that the clock can have.
pub const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

/// The default of [`NetworkOptions::workers`].
const WORKERS: usize = 16;

impl Default for NetworkOptions {
    /// Nix's defaults.
    fn default() -> NetworkOptions {
        NetworkOptions {
            certificates: None,
            netrc: Vec::new(),
            connections: 25,
            connect_timeout: Some(Duration::from_secs(15)),
            stall_timeout: Duration::from_secs(300),
            retry: RetryPolicy::default(),
            workers: WORKERS,
            threads: None,
            http2: true,
            user_agent_suffix: String::new(),
            proxies: Proxies::default(),
            services: ServiceEnvironment::default(),
            narinfo_disk_cache: None,
            tells_certificates: false,
        }
    }
}
