//! The HTTP client: TLS, timeouts and windows.

use std::sync::Arc;

use floe_transfer::Error;
use reqwest::{Client, redirect};
use rustls::RootCertStore;

use super::dns::{self, HostsAndDnsResolver};
use super::tls::{self, ClientCertificate};
use crate::options::NetworkOptions;

/// Returns the client, and the reason if it trusts no certificate because it could not read any.
/// This is no error yet, because plain HTTP needs no certificates.
///
/// Errors: [`Error::Proxy`], [`Error::File`] for a client certificate, [`Error::Fetch`].
pub(super) fn client(
    options: &NetworkOptions,
    certificate: Option<&ClientCertificate>,
) -> Result<(Client, Option<String>), Error> {
    let failed = |reason: String| Error::fetch("(setting up TLS)", reason, false);
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
        .map_err(|error| failed(error.to_string()))?;
    let config = tls::client_config(config, provider, roots, listed);
    let mut config = ClientCertificate::add(certificate, config)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if options.http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    let name = concat!("floe/", env!("CARGO_PKG_VERSION"));
    let user_agent = format!("{name} {}", options.user_agent_suffix.trim());
    let mut client = Client::builder()
        .tls_backend_preconfigured(config)
        .user_agent(user_agent.trim_end())
        .redirect(redirect::Policy::none())
        .http2_initial_stream_window_size(stream_window_len(options.workers))
        .http2_initial_connection_window_size(CONNECTION_WINDOW_LEN);
    client = options.proxies.configure(client)?;
    if let Some(timeout) = options.connect_timeout {
        client = client.connect_timeout(timeout);
    }
    if dns::IS_NEEDED {
        client = client.dns_resolver(Arc::new(HostsAndDnsResolver::default()));
    }
    let client = client.build().map_err(|error| failed(error.to_string()))?;
    Ok((client, certificate_error))
}

/// A part of reqwest's error for a server certificate that is not trusted.
pub(super) const INVALID_CERT_TEXT: &str = "invalid peer certificate";

/// Returns how many bytes of one body an HTTP/2 server may send before the worker reads any. A
/// server sends at most one window in a round trip.
fn stream_window_len(workers: usize) -> u32 {
    // Each worker reads one large body, and another one waits for it.
    let bodies = u32::try_from(workers.saturating_mul(2)).unwrap_or(u32::MAX);
    let share = WINDOWS_LEN.checked_div(bodies).unwrap_or(WINDOWS_LEN);
    share.clamp(STREAM_WINDOW_LEN_MIN, STREAM_WINDOW_LEN_MAX)
}

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
        for (workers, expected) in [(0, 16), (1, 16), (2, 8), (4, 4), (16, 1), (200, 1)] {
            assert_eq!(stream_window_len(workers), expected * MIB, "{workers}");
        }
        // The bodies of 200 workers, and 32 small ones.
        let waiting = (400 + 32) * STREAM_WINDOW_LEN_MIN;
        assert!(waiting < CONNECTION_WINDOW_LEN);
        assert_eq!(stream_window_len(usize::MAX), MIB);
    }
}
