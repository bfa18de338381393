//! The client: TLS, time limits and windows.

use std::path::Path;
use std::sync::Arc;

use reqwest::{Client, redirect};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::names::{self, Names};
use crate::error::Error;
use crate::options::NetworkOptions;

/// The client, and why it believes no certificate where the file of those cannot be used: plain
/// HTTP needs none.
pub(super) fn client(options: &NetworkOptions) -> Result<(Client, Option<String>), Error> {
    let failed = |reason: String| Error::fetch("(setting up TLS)", reason, false);
    let (roots, distrust) = match roots(options.certificates.as_deref()) {
        Ok(roots) => (roots, None),
        Err(reason) => (rustls::RootCertStore::empty(), Some(reason)),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    if options.http2 {
        tls.alpn_protocols.insert(0, b"h2".to_vec());
    }
    let name = concat!("floe/", env!("CARGO_PKG_VERSION"));
    let suffix = options.user_agent_suffix.trim();
    let space = if suffix.is_empty() { "" } else { " " };
    let mut client = Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(format!("{name}{space}{suffix}"))
        .redirect(redirect::Policy::none())
        .http2_initial_stream_window_size(STREAM_WINDOW_LEN)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_LEN);
    client = options.proxies.add_to(client)?;
    if let Some(timeout) = options.connect_timeout {
        client = client.connect_timeout(timeout);
    }
    if names::IS_NEEDED {
        client = client.dns_resolver(Arc::new(Names::default()));
    }
    let client = client.build().map_err(|error| failed(error.to_string()))?;
    Ok((client, distrust))
}

/// The certificates that a file holds, or else those of the system, or else Mozilla's; why there
/// are none.
fn roots(certificates: Option<&Path>) -> Result<rustls::RootCertStore, String> {
    let mut roots = rustls::RootCertStore::empty();
    match certificates {
        Some(path) => {
            let unreadable = |source: rustls::pki_types::pem::Error| {
                format!("reading certificates from {}: {source}", path.display())
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
                roots.add_parsable_certificates([certificate.map_err(unreadable)?]);
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            add_mozillas(&mut roots);
        }
    }
    Ok(roots)
}

/// Where a machine has no certificates at all, those that browsers trust. One that has few of them
/// means it, and gets no more.
fn add_mozillas(roots: &mut rustls::RootCertStore) {
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
}

/// What the library says, among other things, of a server whose certificate it does not believe.
pub(super) const UNBELIEVED: &str = "invalid peer certificate";

/// How much of a body an HTTP/2 server may send before the worker has taken any.
const STREAM_WINDOW_LEN: u32 = 1024 * 1024;

/// The same for all bodies of a connection together. A body that waits for its worker keeps its
/// part of this, so it must be more than all that can wait at once: otherwise the one that is
/// being read starves, and with it all. Small bodies, and large ones for 200 workers, are within.
const CONNECTION_WINDOW_LEN: u32 = 512 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mozillas_certificates_count_where_the_machine_has_none_and_only_there() {
        let mut roots = rustls::RootCertStore::empty();
        add_mozillas(&mut roots);
        let all = roots.len();
        assert!(all > 50, "{all} certificates");
        let mut few = rustls::RootCertStore::empty();
        few.extend(webpki_roots::TLS_SERVER_ROOTS.iter().take(1).cloned());
        add_mozillas(&mut few);
        assert_eq!(few.len(), 1);
    }
}
