//! The origin of an attempt to log in, by which the limits of failed attempts count.

use std::fmt;
use std::net::IpAddr;

/// The origin of a request. Attempts of the same origin count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientId {
    /// An address, or the network of an IPv6 address.
    Network(IpAddr),
    /// The user who connected to a Unix socket.
    User(u32),
    /// The system or a proxy named none.
    Unknown,
}

impl fmt::Display for ClientId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientId::Network(IpAddr::V6(network)) => write!(formatter, "the network {network}/64"),
            ClientId::Network(address) => write!(formatter, "the address {address}"),
            ClientId::User(user) => write!(formatter, "the user {user} of this machine"),
            ClientId::Unknown => formatter.write_str("clients without an address"),
        }
    }
}
