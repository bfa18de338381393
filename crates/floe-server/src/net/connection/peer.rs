//! The other end of a connection.

use std::net::IpAddr;

use super::Connection;
use crate::auth::client_id::ClientId;
use crate::config::Limits;
use crate::http::request::Request;
use crate::http::route::RouteSet;
use crate::net::peers::{CountedPeer, network};
use crate::trusted_proxies::TrustedProxies;

/// The other end of a connection: a client, or a trusted proxy that sends requests of clients.
#[derive(Debug)]
pub(crate) struct Peer {
    client: Client,
    /// Whether the client of each request is in its head.
    is_proxy: bool,
    /// The client of the request that is processed, according to the proxy.
    forwarded: Option<Client>,
    /// The routes of the listener that has accepted the connection.
    pub(crate) routes: RouteSet,
    /// Counts the connection until it is dropped. `None` if no limit for addresses applies.
    _counted: Option<CountedPeer>,
}

/// A client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// `None` for the client of a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The user at the other end of a Unix socket.
    pub(crate) user: Option<u32>,
    /// The address for the access log.
    pub(crate) name: String,
}

impl Client {
    /// The name is left out if there is no log.
    pub(crate) fn new(address: Option<IpAddr>, has_log: bool) -> Client {
        let name = match address.filter(|_| has_log) {
            Some(address) => address.to_canonical().to_string(),
            None => "-".into(),
        };
        Client {
            address,
            user: None,
            name,
        }
    }
}

impl Peer {
    pub(crate) fn new(
        client: Client,
        counted: Option<CountedPeer>,
        is_proxy: bool,
        routes: RouteSet,
    ) -> Peer {
        Peer {
            client,
            is_proxy,
            forwarded: None,
            routes,
            _counted: counted,
        }
    }

    /// Forgets the client of the request before.
    pub(crate) fn begin_head(&mut self) {
        self.forwarded = None;
    }

    /// Finds the client of a request that a proxy has sent.
    pub(crate) fn begin_request(
        &mut self,
        request: &Request<'_>,
        proxies: &TrustedProxies,
        has_log: bool,
    ) {
        if self.is_proxy {
            let client = proxies.client(&request.forwarded_for);
            self.forwarded = client.map(|address| Client::new(Some(address), has_log));
        }
    }

    /// Replaces the address of a proxy by that of the client that it has named for all requests.
    /// The client may be another proxy.
    pub(crate) fn set_client(
        &mut self,
        client: Client,
        counted: Option<CountedPeer>,
        proxies: &TrustedProxies,
    ) {
        self.is_proxy = proxies.contains(client.address);
        self.client = client;
        self._counted = counted;
    }

    /// Notes that the proxy has named no client. Any client may have sent the heads, so the server
    /// does not trust their `X-Forwarded-For`.
    pub(crate) fn set_unknown_client(&mut self) {
        self.is_proxy = false;
    }

    /// Returns the address for the access log.
    pub(crate) fn name(&self) -> &str {
        &self.client().name
    }

    /// Returns the client whose failed attempts count together.
    pub(crate) fn client_id(&self) -> ClientId {
        let client = self.client();
        match (client.address, client.user) {
            (Some(address), _) => ClientId::Network(network(address)),
            (None, Some(user)) => ClientId::User(user),
            (None, None) => ClientId::Unknown,
        }
    }

    fn client(&self) -> &Client {
        self.forwarded.as_ref().unwrap_or(&self.client)
    }
}

impl Connection {
    /// Replaces the proxy at the other end by the client that it has named.
    pub(crate) fn set_client(
        &mut self,
        client: Client,
        counted: Option<CountedPeer>,
        limits: &Limits,
    ) {
        self.peer
            .set_client(client, counted, &limits.trusted_proxies);
    }

    /// Notes that the proxy at the other end has named no client for the connection.
    pub(crate) fn set_unknown_client(&mut self) {
        self.peer.set_unknown_client();
    }
}
