//! The settings of `floe serve`: from flags, environment and configuration file, each with its
//! origin.
//!
//! Flags override the environment, which overrides the file. The table in this file declares each
//! option once. The flags, the keys, `--help`, the printed file and the configuration of the server
//! come from it. The values of the defaults are in `floe-server/config`; the texts repeat them, and
//! a test compares both.

mod file;
mod harmonia;
mod option;
mod print;
mod resolve;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use floe_server::{Compress, Config, Listen, TrustedProxy};

pub use option::{ServeEntry, ServeOption};

use crate::origin::Origin;
use crate::setting::Setting;
use crate::value::{AccessLogFormat, ByteSize, StderrFormat};
use harmonia::HarmoniaKeys;
use option::KeyKind::{self, Address, CommonFlag};
use option::ServerField as _;

option::serve_settings! {
    /// Listen on HOST:PORT, :PORT or unix:PATH, IPv6 hosts in brackets; may be repeated [default:
    /// 127.0.0.1:5000]
    listen: Vec<Listen> => listen,
        ServeOption::new("-l, --listen HOST:PORT").excluding(&["host", "port"]);
    /// Listen on this host; * is every address, *4 every IPv4 and *6 every IPv6 address [default:
    /// 127.0.0.1]
    host: String, ServeOption::new("--host HOST").kind(Address);
    /// Listen on this port; 0 lets the system choose one [default: 5000]
    port: u16, ServeOption::new("-p, --port PORT").kind(Address);
    /// Listen on a Unix socket
    socket: PathBuf, ServeOption::new("--socket PATH").kind(Address);
    /// Use TLS with this certificate, a PEM file that its issuers follow; may be repeated
    tls_cert: Vec<PathBuf>, ServeOption::new("--tls-cert FILE").live();
    /// The private key of the certificate, a PEM file; as often as --tls-cert, in the same order
    tls_key: Vec<PathBuf>, ServeOption::new("--tls-key FILE").live();
    /// Demand a certificate of each client that an authority in this PEM file has issued
    tls_client_ca: PathBuf, ServeOption::new("--tls-client-ca FILE").live();
    /// Serve /metrics on this address instead, with /health, /ready and /version, and nothing else;
    /// may be repeated
    metrics_listen: Vec<Listen> => metrics_listen,
        ServeOption::new("--metrics-listen HOST:PORT").printed_before("tls_cert");
    /// Redirect clients to HTTPS that connect to this address over plain HTTP; may be repeated
    redirect_listen: Vec<Listen> => redirect_listen,
        ServeOption::new("--redirect-listen HOST:PORT").printed_before("tls_cert");
    /// Believe the X-Forwarded-For of this proxy: an address, a network such as 10.0.0.0/8, or unix
    /// for every program on a Unix socket; may be repeated
    trusted_proxy: Vec<TrustedProxy> => limits.trusted_proxies,
        ServeOption::new("--trusted-proxy ADDRESS").live().printed_before("tls_cert");
    /// Expect a header of the PROXY protocol, version 1 or 2, at the beginning of each connection
    /// of a trusted proxy
    proxy_protocol: bool => limits.proxy_protocol,
        ServeOption::new("--proxy-protocol").live().printed_before("tls_cert");
    /// Serve this store: auto, local, a directory, local?root=DIR; daemon means the store behind
    /// it
    store: String, ServeOption::new("--store STORE").excluding(&["root"]);
    /// Serve the store below this directory (DIR/nix/store)
    root: PathBuf, ServeOption::new("--root DIR");
    /// The store directory in the paths
    store_dir: String, ServeOption::new("--store-dir DIR");
    /// Sign with the key in this file; may be repeated
    secret_key_file: Vec<PathBuf>, ServeOption::new("--secret-key-file FILE").live();
    /// Clients try caches with lower numbers first [default: 30]
    priority: i32 => priority, ServeOption::new("--priority N").live();
    /// When to compress NARs for clients that accept it [default: cached with --compressed-cache,
    /// else off]
    compress: Compress => compress, ServeOption::new("--compress WHEN");
    /// Keep compressed NARs in this directory, which only floe may use
    compressed_cache: PathBuf, ServeOption::new("--compressed-cache DIR");
    /// The largest size of the compressed NAR cache, such as 500M or 20G [default: 10G]
    compressed_cache_size: ByteSize, ServeOption::new("--compressed-cache-size BYTES");
    /// Write a line for each request to this file, or to stdout with -
    access_log: PathBuf, ServeOption::new("--access-log FILE");
    /// The format of these lines, which go to stdout without --access-log
    access_log_format: AccessLogFormat, ServeOption::new("--access-log-format FORMAT");
    /// Demand a login of this file from each client; floe serve auth makes it
    auth_file: PathBuf => auth_file, ServeOption::new("--auth-file FILE");
    /// Let clients without a login read; those that push still need one
    public_read: bool => public_read, ServeOption::new("--public-read").live();
    /// Do not tell people at / how to use the cache
    no_landing_page: bool => no_landing_page, ServeOption::new("--no-landing-page").live();
    /// Let those who may read look at the store at /browse, not only logins of the scope status
    status_browse: bool => status_browse, ServeOption::new("--status-browse").live();
    /// Serve the pins of the binary cache in this directory, which floe pin --to file://DIR writes
    pins: PathBuf => pins, ServeOption::new("--pins DIR");
    /// Receive paths that clients with a login of the scope push upload into a binary cache in this
    /// directory, and serve them
    receive: PathBuf, ServeOption::new("--receive DIR").excluding(&["receive_into_store"]);
    /// Add such paths to the store itself; their NARs wait in this directory until their narinfos
    /// come
    receive_into_store: PathBuf, ServeOption::new("--receive-into-store DIR");
    /// Add paths to the store that no trusted key has signed
    receive_no_check_sigs: bool, ServeOption::new("--receive-no-check-sigs");
    /// How long a collection of the store keeps a path that was added, at least [default: 86400]
    receive_keep: Duration, ServeOption::new("--receive-keep SECONDS");
    /// The largest file of a NAR that is received, such as 500M or 20G [default: 16G]
    receive_max_size: ByteSize, ServeOption::new("--receive-max-size BYTES");
    /// The largest size of all files of NARs that are received [default: no limit]
    receive_max_total: ByteSize, ServeOption::new("--receive-max-total BYTES");
    /// The number of objects that a login may upload in a minute; more get a 429 [default: no
    /// limit]
    receive_rate: NonZeroUsize, ServeOption::new("--receive-rate N");
    /// The format of stderr
    log_format: StderrFormat, ServeOption::new("--log-format FORMAT").kind(CommonFlag);
    /// The number of threads that answer requests [default: the number of cores]
    threads: NonZeroUsize => threads, ServeOption::new("--threads N");
    /// The number of connections of one address, or of one IPv6 network of 64 bits [default: three
    /// times the number of free connections]
    max_connections_per_address: NonZeroUsize => limits.connections_per_address_max,
        ServeOption::new("--max-connections-per-address N").live();
    /// The number of requests of one connection [default: no limit]
    max_requests_per_connection: NonZeroUsize => limits.requests_per_connection_max,
        ServeOption::new("--max-requests-per-connection N").live();
    /// The longest head of a request, such as 32K [default: 16K]
    max_header_size: ByteSize => limits.head_len_max,
        ServeOption::new("--max-header-size BYTES").live();
    /// The number of NARs that --compress always compresses at once; further ones are sent
    /// uncompressed [default: the number of threads]
    max_encoders: NonZeroUsize => encoders_max, ServeOption::new("--max-encoders N");
    /// The least number of bytes per second that a client takes; slower ones are closed after the
    /// --timeout, or after 15 seconds if the server is full [default: 1024]
    min_rate: ByteSize => limits.rate_min, ServeOption::new("--min-rate BYTES").live();
    /// The number of connections at once; more get a 503 [default: 8192, or what the limit
    /// of open files allows]
    max_connections_total: NonZeroUsize => limits.connections_max,
        ServeOption::new("--max-connections N")
            .live().printed_before("max_connections_per_address");
    /// The longest idle time of a connection between requests [default: 120]
    keepalive_timeout: Duration => limits.keep_alive_timeout,
        ServeOption::new("--keepalive-timeout SECONDS").live();
    /// The longest time to receive the head of a request [default: 30]
    read_timeout: Duration => limits.read_timeout,
        ServeOption::new("--read-timeout SECONDS").live();
    /// The longest time that a client may leave a response unread [default: 600]
    timeout: Duration => limits.write_timeout, ServeOption::new("--timeout SECONDS").live();
    /// How long responses may take to end when the server stops [default: 10]
    stop_timeout: Duration => limits.stop_timeout,
        ServeOption::new("--stop-timeout SECONDS").live();
}

impl ServeSettings {
    /// Returns warnings for the operator, about keys without effect and deprecated ones.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether no setting names an address, so that only this machine can connect.
    pub fn has_default_address(&self) -> bool {
        self.listen.origins().contains(&Origin::Default)
    }

    /// Returns the keys whose values are others in `new`: those of which a running server takes the
    /// new value over if `is_live`, else the others.
    pub fn changed_keys(&self, new: &ServeSettings, is_live: bool) -> Vec<&'static str> {
        let (mut old, mut new) = (self.clone(), new.clone());
        let (old, new) = (old.entries(), new.entries());
        let pairs = old.iter().zip(&new).filter(|(old, new)| {
            old.option.is_live == is_live && old.setting.text() != new.setting.text()
        });
        pairs.map(|(entry, _)| entry.key).collect()
    }

    /// Returns the keys of floe, without those of harmonia.
    pub fn keys() -> Vec<&'static str> {
        let mut settings = ServeSettings::default();
        let entries = settings.entries().into_iter();
        let own = entries.filter(|entry| entry.option.kind != KeyKind::Harmonia);
        own.map(|entry| entry.key).collect()
    }
}

#[cfg(test)]
mod tests;
