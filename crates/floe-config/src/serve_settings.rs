//! The settings of `floe serve`: from flags, environment and configuration file, each with its
//! origin.
//!
//! Flags override the environment, which overrides the file. [`ServeSettings::entries`] is the
//! table of all keys.

mod choice;
mod file;
mod harmonia;
mod print;
mod resolve;
mod setting;
mod toml_value;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use floe_server::{Compress, Listen, TrustedProxy};

pub use choice::{AccessLogFormat, Choice, StderrFormat};
pub use setting::ServeSetting;
pub use toml_value::{ByteSize, NoByteSize, TIMEOUT_MAX, seconds};

use crate::origin::Origin;
use harmonia::HarmoniaKeys;
use setting::AnyServeSetting;

/// The settings of `floe serve`. Fields have the names of the keys.
#[derive(Clone, Debug, Default)]
pub struct ServeSettings {
    /// The addresses to listen on.
    pub listen: ServeSetting<Vec<Listen>>,
    /// The host of one more address.
    pub host: ServeSetting<String>,
    /// The port of this address.
    pub port: ServeSetting<u16>,
    /// The Unix socket to listen on.
    pub socket: ServeSetting<PathBuf>,
    /// The addresses for metrics alone.
    pub metrics_listen: ServeSetting<Vec<Listen>>,
    /// The proxies that may name the client of a request.
    pub trusted_proxy: ServeSetting<Vec<TrustedProxy>>,
    /// Whether connections of these proxies begin with a header of the PROXY protocol.
    pub proxy_protocol: ServeSetting<bool>,
    /// The files of the certificates for TLS.
    pub tls_cert: ServeSetting<Vec<PathBuf>>,
    /// The files of their keys, in the same order.
    pub tls_key: ServeSetting<Vec<PathBuf>>,
    /// The file of the authorities that issue the certificates of clients.
    pub tls_client_ca: ServeSetting<PathBuf>,
    /// The URI of the store.
    pub store: ServeSetting<String>,
    /// The directory that contains the store.
    pub root: ServeSetting<PathBuf>,
    /// The store directory in the paths.
    pub store_dir: ServeSetting<String>,
    /// The files of the secret keys.
    pub secret_key_file: ServeSetting<Vec<PathBuf>>,
    /// The priority in `nix-cache-info`.
    pub priority: ServeSetting<i32>,
    /// When to compress NARs.
    pub compress: ServeSetting<Compress>,
    /// The directory of the compressed NAR cache.
    pub compressed_cache: ServeSetting<PathBuf>,
    /// The largest size of the compressed NAR cache.
    pub compressed_cache_size: ServeSetting<ByteSize>,
    /// The file of the access log, or `-` for stdout.
    pub access_log: ServeSetting<PathBuf>,
    /// The format of the access log.
    pub access_log_format: ServeSetting<AccessLogFormat>,
    /// The file of the logins that clients need.
    pub auth_file: ServeSetting<PathBuf>,
    /// The format of lines on stderr.
    pub log_format: ServeSetting<StderrFormat>,
    /// The number of threads that answer requests.
    pub threads: ServeSetting<NonZeroUsize>,
    /// The number of connections at once (`--max-connections`). The key `max_connections` is
    /// harmonia's and counts the connections of one worker.
    pub max_connections_total: ServeSetting<NonZeroUsize>,
    /// The number of connections of one address.
    pub max_connections_per_address: ServeSetting<NonZeroUsize>,
    /// The number of requests of one connection.
    pub max_requests_per_connection: ServeSetting<NonZeroUsize>,
    /// The longest head of a request.
    pub max_header_size: ServeSetting<ByteSize>,
    /// The number of NARs that are compressed at once.
    pub max_encoders: ServeSetting<NonZeroUsize>,
    /// The least rate at which a client takes a response, in bytes per second.
    pub min_rate: ServeSetting<ByteSize>,
    /// The longest idle time of a connection.
    pub keepalive_timeout: ServeSetting<Duration>,
    /// The longest time to receive the head of a request.
    pub read_timeout: ServeSetting<Duration>,
    /// The longest time that a client may leave a response unread.
    pub timeout: ServeSetting<Duration>,
    harmonia: HarmoniaKeys,
    warnings: Vec<String>,
}

/// A key of the configuration file.
struct Entry<'a> {
    key: &'static str,
    kind: KeyKind,
    /// The keys that a file must not have beside this one.
    excludes: &'static [&'static str],
    setting: &'a mut dyn AnyServeSetting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    /// A key with the name of a flag.
    Flag,
    /// A key that [`ServeSettings::resolve`] moves into `listen`.
    Address,
    /// A key of harmonia.
    Harmonia,
}

impl<'a> Entry<'a> {
    fn new(key: &'static str, kind: KeyKind, setting: &'a mut dyn AnyServeSetting) -> Entry<'a> {
        Entry {
            key,
            kind,
            excludes: &[],
            setting,
        }
    }

    fn excluding(self, excludes: &'static [&'static str]) -> Entry<'a> {
        Entry { excludes, ..self }
    }
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

    /// Returns the keys of floe, without those of harmonia.
    pub fn keys() -> Vec<&'static str> {
        let mut settings = ServeSettings::default();
        let entries = settings.entries().into_iter();
        let own = entries.filter(|entry| entry.kind != KeyKind::Harmonia);
        own.map(|entry| entry.key).collect()
    }

    /// All keys, in the order in which they are printed.
    #[rustfmt::skip]
    fn entries(&mut self) -> Vec<Entry<'_>> {
        use KeyKind::{Address, Flag};
        let mut entries = vec![
            Entry::new("listen", Flag, &mut self.listen).excluding(&["host", "port"]),
            Entry::new("host", Address, &mut self.host),
            Entry::new("port", Address, &mut self.port),
            Entry::new("socket", Address, &mut self.socket),
            Entry::new("metrics_listen", Flag, &mut self.metrics_listen),
            Entry::new("trusted_proxy", Flag, &mut self.trusted_proxy),
            Entry::new("proxy_protocol", Flag, &mut self.proxy_protocol),
            Entry::new("tls_cert", Flag, &mut self.tls_cert),
            Entry::new("tls_key", Flag, &mut self.tls_key),
            Entry::new("tls_client_ca", Flag, &mut self.tls_client_ca),
            Entry::new("store", Flag, &mut self.store).excluding(&["root"]),
            Entry::new("root", Flag, &mut self.root),
            Entry::new("store_dir", Flag, &mut self.store_dir),
            Entry::new("secret_key_file", Flag, &mut self.secret_key_file),
            Entry::new("priority", Flag, &mut self.priority),
            Entry::new("compress", Flag, &mut self.compress),
            Entry::new("compressed_cache", Flag, &mut self.compressed_cache),
            Entry::new("compressed_cache_size", Flag, &mut self.compressed_cache_size),
            Entry::new("access_log", Flag, &mut self.access_log),
            Entry::new("access_log_format", Flag, &mut self.access_log_format),
            Entry::new("auth_file", Flag, &mut self.auth_file),
            Entry::new("log_format", Flag, &mut self.log_format),
            Entry::new("threads", Flag, &mut self.threads),
            Entry::new("max_connections_total", Flag, &mut self.max_connections_total),
            Entry::new("max_connections_per_address", Flag, &mut self.max_connections_per_address),
            Entry::new("max_requests_per_connection", Flag, &mut self.max_requests_per_connection),
            Entry::new("max_header_size", Flag, &mut self.max_header_size),
            Entry::new("max_encoders", Flag, &mut self.max_encoders),
            Entry::new("min_rate", Flag, &mut self.min_rate),
            Entry::new("keepalive_timeout", Flag, &mut self.keepalive_timeout),
            Entry::new("read_timeout", Flag, &mut self.read_timeout),
            Entry::new("timeout", Flag, &mut self.timeout),
        ];
        entries.extend(self.harmonia.entries());
        entries
    }
}

#[cfg(test)]
mod tests;
