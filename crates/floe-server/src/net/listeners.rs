//! The listening sockets of a server: for clients, for monitoring and for redirects.

use crate::config::{Listen, PassedSocket, SocketUse};
use crate::error::ServeError;
use crate::http::route::RouteSet;
use crate::net::listen::{self, Listener};

/// The listening sockets of a server, and their addresses.
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
    pub(crate) clients: Vec<Listen>,
    pub(crate) monitoring: Vec<Listen>,
    pub(crate) redirects: Vec<Listen>,
}

impl Listeners {
    /// Takes over the sockets of another process. Listens on the addresses for clients, for
    /// monitoring and for redirects, as far as no socket takes their place.
    ///
    /// Errors: [`ServeError::Listen`].
    pub(crate) fn open(
        [clients, monitoring, redirects]: [&[Listen]; 3],
        mut passed: Vec<PassedSocket>,
        backlog: u16,
    ) -> Result<Listeners, ServeError> {
        let mut open = |addresses: &[Listen], used_for, routes| {
            let is_wanted = |it: &mut PassedSocket| it.used_for == used_for;
            let adopted: Vec<PassedSocket> = passed.extract_if(.., is_wanted).collect();
            let mut listeners = Vec::new();
            if adopted.is_empty() {
                for address in addresses {
                    listeners.extend(listen::open(address, backlog)?);
                }
            }
            for passed in adopted {
                listeners.push(listen::adopt(passed.socket)?);
            }
            for listener in &mut listeners {
                listener.routes = routes;
            }
            Ok::<_, ServeError>(listeners)
        };
        let monitoring = open(monitoring, SocketUse::Monitoring, RouteSet::Monitoring)?;
        let routes = if monitoring.is_empty() {
            RouteSet::All
        } else {
            RouteSet::WithoutMetrics
        };
        let clients = open(clients, SocketUse::Clients, routes)?;
        let redirects = open(redirects, SocketUse::Redirect, RouteSet::Redirect)?;
        let addresses = |listeners: &[Listener]| -> Vec<Listen> {
            listeners.iter().map(|it| it.address.clone()).collect()
        };
        Ok(Listeners {
            clients: addresses(&clients),
            monitoring: addresses(&monitoring),
            redirects: addresses(&redirects),
            all: clients
                .into_iter()
                .chain(monitoring)
                .chain(redirects)
                .collect(),
        })
    }

    /// Returns the port of the first TCP address for clients.
    pub(crate) fn first_port(&self) -> Option<u16> {
        self.clients.iter().find_map(|address| match address {
            Listen::Tcp { port, .. } => Some(*port),
            Listen::Unix(_) => None,
        })
    }
}
