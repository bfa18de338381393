//! Limits how many connections one peer address may have.
//!
//! An address may have three times as many connections as are free. A single one can therefore have
//! three quarters of all, the next one three quarters of the rest, and so on (the dynamic threshold
//! of Choudhury and Hahne for shared buffers). At least 32 are allowed if they are free. A proxy in
//! front of the server is one address for all its clients, so the limit is not lower.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The number of open connections of each address.
#[derive(Debug)]
pub(crate) struct PeerCounts {
    /// How many connections one address may have, however many are free.
    max: AtomicUsize,
    counts: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct CountedPeer {
    counts: Arc<PeerCounts>,
    network: IpAddr,
}

impl PeerCounts {
    /// Makes the counts. `max` is the limit that the operator sets.
    pub(crate) fn new(max: Option<NonZeroUsize>) -> Arc<PeerCounts> {
        Arc::new(PeerCounts {
            max: AtomicUsize::new(or_any(max)),
            counts: Mutex::default(),
        })
    }

    /// Sets another limit, for new connections.
    pub(crate) fn set_max(&self, max: Option<NonZeroUsize>) {
        self.max.store(or_any(max), Ordering::Relaxed);
    }

    /// Counts a connection while so many are free.
    ///
    /// Errors: the address has too many, namely this number.
    pub(crate) fn count(
        self: &Arc<PeerCounts>,
        address: IpAddr,
        free: usize,
    ) -> Result<CountedPeer, usize> {
        let network = network(address);
        let share = (free * SHARE_OF_FREE).max(PEER_CONNECTIONS_MIN);
        let mut counts = self.counts.lock();
        let count = counts.entry(network).or_default();
        if *count >= share.min(self.max.load(Ordering::Relaxed)) {
            return Err(*count);
        }
        *count += 1;
        drop(counts);
        Ok(CountedPeer {
            counts: self.clone(),
            network,
        })
    }
}

fn or_any(max: Option<NonZeroUsize>) -> usize {
    max.map_or(usize::MAX, NonZeroUsize::get)
}

impl Drop for CountedPeer {
    fn drop(&mut self) {
        let mut counts = self.counts.counts.lock();
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
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// How many connections an address may have for each that is free.
const SHARE_OF_FREE: usize = 3;

/// Smaller limits would refuse a single client of Nix, which has up to 25 connections, on a server
/// for which the operator has chosen few connections.
const PEER_CONNECTIONS_MIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds connections of an address to a server with `max` until one is refused.
    fn fill(
        counts: &Arc<PeerCounts>,
        open: &mut Vec<CountedPeer>,
        max: usize,
        address: &str,
    ) -> usize {
        let before = open.len();
        while open.len() < max {
            match counts.count(address.parse().unwrap(), max - open.len()) {
                Ok(counted) => open.push(counted),
                Err(_) => break,
            }
        }
        open.len() - before
    }

    #[test]
    fn address_is_refused_at_its_share_and_others_are_not() {
        let (counts, mut open) = (PeerCounts::new(None), Vec::new());
        assert_eq!(fill(&counts, &mut open, 200, "2001:db8::1"), 150);
        assert_eq!(
            fill(&counts, &mut open, 200, "2001:db8::2"),
            0,
            "the same network"
        );
        assert_eq!(fill(&counts, &mut open, 200, "2001:db8:0:1::1"), 38);
        drop(open);
        assert!(counts.counts.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn greedy_addresses_leave_room_for_the_next_one() {
        let (counts, mut open) = (PeerCounts::new(None), Vec::new());
        for greedy in 1..=4 {
            fill(&counts, &mut open, 8192, &format!("192.0.2.{greedy}"));
        }
        assert!(fill(&counts, &mut open, 8192, "198.51.100.1") >= 24);
    }

    #[test]
    fn limit_of_the_operator_holds_however_many_are_free() {
        let counts = PeerCounts::new(NonZeroUsize::new(5));
        let mut open = Vec::new();
        assert_eq!(fill(&counts, &mut open, 8192, "192.0.2.1"), 5);
        let refused = counts.count("192.0.2.1".parse().unwrap(), 8000);
        assert_eq!(refused.unwrap_err(), 5);
    }

    #[test]
    fn ipv4_address_is_the_same_on_a_socket_for_both_families() {
        let counts = PeerCounts::new(None);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        let _open: Vec<_> = (0..PEER_CONNECTIONS_MIN)
            .map(|_| counts.count(mapped, 0).unwrap())
            .collect();
        assert!(counts.count("192.0.2.1".parse().unwrap(), 0).is_err());
        assert!(counts.count("192.0.2.2".parse().unwrap(), 0).is_ok());
    }
}
