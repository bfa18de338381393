//! The options of requests to binary caches, as plain values. This crate reads no environment.

use std::path::PathBuf;
use std::time::Duration;

use floe_transfer::NetworkEvents;

use crate::proxies::Proxies;

/// How caches are asked over the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Certificates to trust for TLS instead of the system's, in PEM (`ssl-cert-file`).
    pub certificates: Option<PathBuf>,
    /// Files with user names and passwords for hosts (`netrc-file`); the first that names a host
    /// counts, and one that is not there, or cannot be used, is passed over.
    pub netrc: Vec<PathBuf>,
    /// Requests in flight at once to a cache over HTTP/1.1, which are as many connections
    /// (`http-connections`); 0 is 1.
    pub connections: usize,
    /// How long a host may take to accept a connection (`connect-timeout`).
    pub connect_timeout: Option<Duration>,
    /// How long nothing may arrive before a request is given up (`stalled-download-timeout`).
    pub stall_timeout: Duration,
    /// How often a request is made in all before it has failed (`download-attempts`).
    pub attempts: u32,
    /// Whether HTTP/2 is offered to servers behind TLS (`http2`).
    pub http2: bool,
    /// What is appended to the name that servers are told (`user-agent-suffix`).
    pub user_agent_suffix: String,
    /// Through whom caches are asked.
    pub proxies: Proxies,
    /// Where answers are remembered from one move to the next, if anywhere.
    pub narinfo_disk_cache: Option<NarInfoDiskCacheOptions>,
    /// Who hears of requests that are made again.
    pub events: NetworkEvents,
}

/// Where answers of caches are remembered, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfoDiskCacheOptions {
    /// The SQLite file; it and its directory are made where they are not there.
    pub file: PathBuf,
    /// How long a narinfo counts (`narinfo-cache-positive-ttl`).
    pub positive_ttl: Duration,
    /// How long it counts that a cache lacks a path (`narinfo-cache-negative-ttl`).
    pub negative_ttl: Duration,
    /// How long it counts what a cache says of itself (`narinfo-cache-meta-ttl`).
    pub meta_ttl: Duration,
}

impl NarInfoDiskCacheOptions {
    /// Nix's own times.
    pub fn new(file: PathBuf) -> NarInfoDiskCacheOptions {
        NarInfoDiskCacheOptions {
            file,
            positive_ttl: Duration::from_secs(30 * 24 * 3600),
            negative_ttl: Duration::from_secs(3600),
            meta_ttl: Duration::from_secs(7 * 24 * 3600),
        }
    }
}

impl Default for NetworkOptions {
    /// Nix's own defaults.
    fn default() -> NetworkOptions {
        NetworkOptions {
            certificates: None,
            netrc: Vec::new(),
            connections: 25,
            connect_timeout: Some(Duration::from_secs(15)),
            stall_timeout: Duration::from_secs(300),
            attempts: 5,
            http2: true,
            user_agent_suffix: String::new(),
            proxies: Proxies::default(),
            narinfo_disk_cache: None,
            events: NetworkEvents::default(),
        }
    }
}
