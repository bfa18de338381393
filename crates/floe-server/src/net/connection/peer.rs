//! The other end of a connection.

use crate::http::route::RouteSet;
use crate::net::peers::CountedPeer;

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The address, for the access log.
    pub(crate) name: String,
    /// The routes of the listener that has accepted the connection.
    pub(crate) routes: RouteSet,
    /// Counts the connection until it is dropped. `None` for a client that has no address.
    pub(crate) counted: Option<CountedPeer>,
}
