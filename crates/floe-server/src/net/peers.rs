//! Limits how many connections one peer address may have.
//!
//! A single client must not be able to use all connections of a server. A quarter of them stays
//! free for other addresses. A proxy in front of the server is one address for all its clients, so
//! the limit is not lower.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of open connections of each address.
#[derive(Debug)]
pub(crate) struct PeerCounts {
    /// How many connections one address may have.
    pub(crate) max: usize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedPeer {
    counts: Arc<PeerCounts>,
    network: IpAddr,
}

impl PeerCounts {
    /// Makes the counts for a server with at most `connections_max` connections.
    pub(crate) fn new(connections_max: usize) -> Arc<PeerCounts> {
        Arc::new(PeerCounts {
            max: (connections_max - connections_max / 4).max(PEER_CONNECTIONS_MIN),
            counts: Mutex::default(),
        })
    }

    /// Counts a connection. `None` if the address has too many.
    pub(crate) fn count(self: &Arc<PeerCounts>, address: IpAddr) -> Option<CountedPeer> {
        let network = network(address);
        let mut counts = self.counts();
        let count = counts.entry(network).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(CountedPeer {
            counts: self.clone(),
            network,
        })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedPeer {
    /// Returns the address, or its network for IPv6.
    pub(crate) fn network(&self) -> IpAddr {
        self.network
    }
}

impl Drop for CountedPeer {
    fn drop(&mut self) {
        let mut counts = self.counts.counts();
        if let Some(count) = counts.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.network);
            }
        }
    }
}

/// Returns the part of an address that one client cannot change: a client with IPv6 usually has all
/// addresses of a network with 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// Smaller limits would refuse a single client of Nix, which has up to 25 connections, on a server
/// for which the operator has chosen few connections.
const PEER_CONNECTIONS_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_refused_at_its_limit_and_others_are_not() {
        let counts = PeerCounts::new(200);
        let client: IpAddr = "2001:db8::1".parse().unwrap();
        let mut open: Vec<_> = (0..150).map(|_| counts.count(client).unwrap()).collect();
        assert!(counts.count("2001:db8::2".parse().unwrap()).is_none());
        assert!(counts.count("2001:db8:0:1::1".parse().unwrap()).is_some());
        open.pop();
        open.push(counts.count(client).unwrap());
        assert!(counts.count(client).is_none());
        drop(open);
        assert!(counts.counts().is_empty(), "nothing is kept");
    }

    #[test]
    fn ipv4_address_is_the_same_on_a_socket_for_both_families() {
        let counts = PeerCounts::new(1);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        let _open: Vec<_> = (0..PEER_CONNECTIONS_MIN)
            .map(|_| counts.count(mapped).unwrap())
            .collect();
        assert!(counts.count("192.0.2.1".parse().unwrap()).is_none());
        assert!(counts.count("192.0.2.2".parse().unwrap()).is_some());
    }
}
