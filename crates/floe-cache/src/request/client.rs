//! The client of the requests to one cache or service: the network of the session, and what the
//! URI of the cache changes.

use std::sync::{Arc, OnceLock};

use floe_format::Netrc;
use floe_transfer::{Error, HttpServer};

use super::dialect::{Dialect, Explanation};
use super::options::RequestOptions;
use crate::network::client::Clients;
use crate::network::{ClientCertificate, Network, NetworkOptions, NetworkShared};

/// The client of the requests to one cache or service.
#[derive(Clone, Debug)]
pub(crate) struct CacheClient {
    pub(crate) network: Arc<NetworkShared>,
    pub(crate) clients: Arc<Clients>,
    /// The options of the session with those of the URI.
    pub(crate) options: NetworkOptions,
    /// The user's logins. `None` if the requests prove in another way who sends them.
    pub(crate) netrc: Option<Arc<[Netrc]>>,
    /// The dialect of the server, if it wants more than plain HTTP.
    pub(crate) dialect: Option<Arc<dyn Dialect>>,
    /// The server, as its first response shows it.
    pub(crate) server: Arc<OnceLock<HttpServer>>,
}

impl CacheClient {
    /// Makes the client of a server without a dialect.
    ///
    /// Errors: [`Error::File`] if the client certificate cannot be used.
    pub(crate) fn new(
        network: &Network,
        requests: &RequestOptions,
        certificate: Option<&ClientCertificate>,
    ) -> Result<CacheClient, Error> {
        let network = network.shared.clone();
        let options = requests.apply(&network.options);
        let of_session = &network.options;
        let waits = |options: &NetworkOptions| options.retry.waits_for_outages();
        let needs_clients = certificate.is_some()
            || options.connect_timeout != of_session.connect_timeout
            || waits(&options) != waits(of_session);
        let clients = if needs_clients {
            Clients::new(&options, &network.events, certificate)?.into()
        } else {
            network.clients.clone()
        };
        Ok(CacheClient {
            netrc: Some(network.netrc.clone()),
            network,
            clients,
            options,
            dialect: None,
            server: Arc::default(),
        })
    }

    /// Returns the cause of a refusal in the words of the server, if the body of the reply has it.
    pub(crate) fn explain(&self, body: &[u8]) -> Option<Explanation> {
        match &self.dialect {
            Some(dialect) => dialect.explain(body),
            None => plain_explanation(body),
        }
    }
}

/// Returns the words of a server without a dialect. A bucket also has an address that needs no
/// signatures.
#[cfg(feature = "s3")]
fn plain_explanation(body: &[u8]) -> Option<Explanation> {
    let document = super::ErrorDocument::parse(body)?;
    Some(Explanation {
        message: document.to_string(),
        advice: "",
        is_denial: false,
    })
}

#[cfg(not(feature = "s3"))]
fn plain_explanation(_: &[u8]) -> Option<Explanation> {
    None
}

#[cfg(all(test, feature = "s3"))]
mod tests {
    use super::*;

    #[test]
    fn server_without_dialect_explains_its_refusals() {
        let body = b"<Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>";
        let explanation = plain_explanation(body).unwrap();
        assert_eq!(explanation.message, "NoSuchBucket: gone");
        assert!(!explanation.is_denial && explanation.advice.is_empty());
        assert_eq!(plain_explanation(b"<html>"), None);
    }
}
