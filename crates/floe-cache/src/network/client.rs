//! The HTTP clients: TLS, timeouts, windows, and the number of connections over HTTP/2.
//!
//! A client has one connection to each host that speaks HTTP/2. One connection alone is slow for
//! bodies on a network with delay: its congestion window grows from nothing, a lost packet stops
//! all bodies, and queries wait behind them. Therefore bodies have clients of their own, which all
//! use the same settings and TLS sessions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use floe_transfer::{Buffering, Error, Events, large_prefetch_max};
use reqwest::{Client, ClientBuilder, redirect};
use rustls::RootCertStore;

use super::connect_timer::ConnectTimer;
use super::dns::{self, HostsAndDnsResolver};
use super::options::NetworkOptions;
use super::tls::{self, ClientCertificate};
use crate::error::CacheError;

/// The clients of a cache.
#[derive(Debug)]
pub(crate) struct Clients {
    /// The client of all requests over HTTP/1.1, and of queries over HTTP/2.
    shared: Client,
    /// The clients of bodies over HTTP/2. The first such body makes them.
    bulk: [OnceLock<Client>; BULK_CONNECTIONS],
    config: rustls::ClientConfig,
    options: NetworkOptions,
    events: Events,
    /// The bodies in flight, for each bulk client.
    bodies: [Arc<()>; BULK_CONNECTIONS],
    /// The reason why the clients trust no certificate, if they could not read any.
    pub(crate) certificate_error: Option<String>,
}

/// The bulk client of a body. Until it is dropped, the client counts the body.
#[derive(Debug)]
pub(crate) struct BulkClient {
    index: usize,
    _counted: Arc<()>,
}

impl Clients {
    /// Makes the clients. It is not an error yet if they cannot read the trusted certificates,
    /// because plain HTTP needs none.
    ///
    /// Errors: [`CacheError::Proxy`], [`CacheError::SetUp`], [`Error::File`] for a client
    /// certificate.
    pub(crate) fn new(
        options: &NetworkOptions,
        events: &Events,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Clients, Error> {
        let (config, certificate_error) = tls_config(options, certificate)?;
        Ok(Clients {
            shared: client(options, events, config.clone())?
                .build()
                .map_err(|error| set_up_error(&error))?,
            bulk: Default::default(),
            config,
            options: options.clone(),
            events: events.clone(),
            bodies: Default::default(),
            certificate_error,
        })
    }

    /// Chooses the client with the fewest bodies in flight among those for small or large bodies.
    pub(crate) fn choose_bulk(&self, buffering: Buffering) -> BulkClient {
        let indexes = match buffering {
            Buffering::Stream => 0..LARGE_CONNECTIONS,
            Buffering::Whole => LARGE_CONNECTIONS..BULK_CONNECTIONS,
        };
        let fewest = indexes.min_by_key(|index| Arc::strong_count(&self.bodies[*index]));
        // Neither range is empty.
        self.bulk_client(fewest.unwrap_or(0))
    }

    /// Returns each bulk client once.
    pub(crate) fn all_bulk(&self) -> impl Iterator<Item = BulkClient> {
        (0..BULK_CONNECTIONS).map(|index| self.bulk_client(index))
    }

    fn bulk_client(&self, index: usize) -> BulkClient {
        BulkClient {
            index,
            _counted: self.bodies[index].clone(),
        }
    }

    /// Returns the client of a request to a host that speaks HTTP/2 or not.
    pub(crate) fn get(&self, bulk: Option<&BulkClient>) -> &Client {
        let Some(BulkClient { index, .. }) = bulk else {
            return &self.shared;
        };
        let made = &self.bulk[*index];
        if let Some(client) = made.get() {
            return client;
        }
        // Such a client makes one connection even if it gets many requests before the first reply.
        let client = client(&self.options, &self.events, self.config.clone())
            .map(ClientBuilder::http2_prior_knowledge)
            .map(ClientBuilder::build);
        match client {
            Ok(Ok(client)) => made.get_or_init(|| client),
            // The same settings have made the shared client.
            _ => &self.shared,
        }
    }
}

/// Returns the settings of TLS, and the reason if no certificate could be read.
fn tls_config(
    options: &NetworkOptions,
    certificate: Option<&ClientCertificate>,
) -> Result<(rustls::ClientConfig, Option<String>), Error> {
    let file = options.certificates.as_deref();
    let (listed, certificate_error) = match tls::load_certificates(file) {
        Ok(certificates) => (certificates, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(listed.iter().cloned());
    if file.is_none() {
        tls::add_mozilla_roots(&mut roots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| set_up_error(&error))?;
    let config = tls::client_config(config, provider, roots, listed);
    let mut config = ClientCertificate::add(certificate, config)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if options.http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok((config, certificate_error))
}

fn set_up_error(error: &impl ToString) -> Error {
    CacheError::SetUp {
        what: "TLS",
        reason: error.to_string(),
    }
    .into()
}

fn client(
    options: &NetworkOptions,
    events: &Events,
    config: rustls::ClientConfig,
) -> Result<ClientBuilder, Error> {
    let name = concat!("floe/", env!("CARGO_PKG_VERSION"));
    let user_agent = format!("{name} {}", options.user_agent_suffix.trim());
    let mut client = Client::builder()
        .tls_backend_preconfigured(config)
        .user_agent(user_agent.trim_end())
        .redirect(redirect::Policy::none())
        .tls_info(options.tells_certificates)
        .connector_layer(ConnectTimer::new(events, gives_up_early(options)))
        .http2_initial_stream_window_size(stream_window_len(options.workers))
        .http2_initial_connection_window_size(CONNECTION_WINDOW_LEN)
        // A dead connection must not stay in the pool until the timeout of TCP.
        .http2_keep_alive_interval(PING_AFTER)
        .http2_keep_alive_timeout(PING_AFTER);
    client = options.proxies.configure(client)?;
    if let Some(timeout) = options.connect_timeout {
        client = client.connect_timeout(timeout);
    }
    if dns::IS_NEEDED {
        client = client.dns_resolver(Arc::new(HostsAndDnsResolver::default()));
    }
    Ok(client)
}

/// Whether the first connections get less time than the user allows, because requests wait for a
/// server that is away. A user who has set the time knows the network better.
fn gives_up_early(options: &NetworkOptions) -> bool {
    let by_default = NetworkOptions::default().connect_timeout;
    options.retry.waits_for_outages() && options.connect_timeout == by_default
}

/// Returns how many bytes of one body an HTTP/2 server may send before the worker reads any. A
/// server sends at most one window in a round trip.
fn stream_window_len(workers: usize) -> u32 {
    // Each worker reads one large body, and others wait for the workers.
    let bodies = workers.saturating_add(large_prefetch_max(workers));
    let bodies = u32::try_from(bodies).unwrap_or(u32::MAX);
    let share = WINDOWS_LEN.checked_div(bodies).unwrap_or(WINDOWS_LEN);
    share.clamp(STREAM_WINDOW_LEN_MIN, STREAM_WINDOW_LEN_MAX)
}

/// The time without a frame after which the client sends a ping over HTTP/2, and the time after
/// which an unanswered ping ends the connection.
const PING_AFTER: Duration = Duration::from_secs(10);

/// The number of connections for large bodies to one host over HTTP/2.
const LARGE_CONNECTIONS: usize = 4;

/// The number of connections for all bodies. Small ones have their own: on those of large bodies
/// they would make two large ones share a connection.
const BULK_CONNECTIONS: usize = LARGE_CONNECTIONS + 2;

/// The windows of all large bodies together.
const WINDOWS_LEN: u32 = 32 * 1024 * 1024;

/// The length of the largest small body, so that each of them is sent without a pause.
const STREAM_WINDOW_LEN_MIN: u32 = 1024 * 1024;

/// At 50 ms, 320 MB per second, more than a worker unpacks.
const STREAM_WINDOW_LEN_MAX: u32 = 16 * 1024 * 1024;

/// The window of all bodies of a connection together. A waiting body keeps its part of this window.
/// If all waiting bodies together could fill it, the body that a worker reads would get no more
/// data, and the copy would hang. The value suffices for all small bodies and for the large bodies
/// of 200 workers.
const CONNECTION_WINDOW_LEN: u32 = 512 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_of_all_bodies_are_bounded() {
        const MIB: u32 = 1024 * 1024;
        for (workers, expected) in [(0, 8), (4, 4), (8, 2), (16, 1), (200, 1)] {
            assert_eq!(stream_window_len(workers), expected * MIB, "{workers}");
        }
        assert!((2 + 4) * stream_window_len(2) <= WINDOWS_LEN);
        // The bodies of 200 workers, and 32 small ones.
        let waiting = (400 + 32) * STREAM_WINDOW_LEN_MIN;
        assert!(waiting < CONNECTION_WINDOW_LEN);
        assert_eq!(stream_window_len(usize::MAX), MIB);
    }
}
