//! Counts the bytes and the round trips of each connection over a link.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The connections of a client, by its ports.
type Connections = HashMap<u16, Connection>;

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    /// Bytes from the client.
    sent: u64,
    /// Bytes from the server.
    received: u64,
    /// How often the client has sent something after the server.
    round_trips: u64,
    has_reply: bool,
    /// Whether all its further packets are lost.
    is_stalled: bool,
}

/// The traffic of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::closures) struct Traffic {
    pub(in crate::closures) connections: usize,
    /// Bytes of all connections from the client.
    pub(in crate::closures) sent: u64,
    /// Bytes of all connections from the server.
    pub(in crate::closures) received: u64,
    /// The most round trips of one connection.
    pub(in crate::closures) round_trips_max: u64,
    /// Whether a connection was stalled.
    pub(in crate::closures) has_stalled: bool,
}

/// The connections since the last report.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedTraffic(Arc<Mutex<Connections>>);

/// The packets of one direction.
#[derive(Debug)]
pub(super) struct Direction {
    shared: SharedTraffic,
    is_from_client: bool,
}

impl SharedTraffic {
    pub(super) fn direction(&self, is_from_client: bool) -> Direction {
        Direction {
            shared: self.clone(),
            is_from_client,
        }
    }

    pub(super) fn take(&self) -> Traffic {
        let connections = std::mem::take(&mut *self.0.lock());
        let used = connections.values().filter(|it| it.sent > 0);
        used.fold(Traffic::default(), |sum, one| Traffic {
            connections: sum.connections + 1,
            sent: sum.sent + one.sent,
            received: sum.received + one.received,
            round_trips_max: sum.round_trips_max.max(one.round_trips),
            has_stalled: sum.has_stalled || one.is_stalled,
        })
    }
}

impl Direction {
    /// Counts a packet. Returns whether it belongs to a stalled connection and is lost. The first
    /// connection to the port `stalls` that has received [`STALL_AFTER`] bytes stalls.
    pub(super) fn count(&self, packet: &[u8], stalls: Option<u16>) -> bool {
        let Some(segment) = Segment::parse(packet) else {
            return false;
        };
        let mut connections = self.shared.0.lock();
        let (port, to) = if self.is_from_client {
            (segment.from, segment.to)
        } else {
            (segment.to, segment.from)
        };
        let may_stall = stalls == Some(to) && !connections.values().any(|other| other.is_stalled);
        let connection = connections.entry(port).or_default();
        connection.is_stalled |= may_stall && connection.received > STALL_AFTER;
        if connection.is_stalled || segment.data_len == 0 {
            return connection.is_stalled;
        }
        if self.is_from_client {
            connection.sent += segment.data_len;
            if connection.sent == segment.data_len || connection.has_reply {
                connection.round_trips += 1;
            }
            connection.has_reply = false;
        } else {
            connection.received += segment.data_len;
            connection.has_reply = true;
        }
        false
    }
}

/// Returns the length of the data of a packet; 0 if it is not TCP over IPv4.
pub(super) fn data_len(packet: &[u8]) -> u64 {
    Segment::parse(packet).map_or(0, |segment| segment.data_len)
}

/// The parts of a TCP segment that are counted.
struct Segment {
    from: u16,
    to: u16,
    data_len: u64,
}

impl Segment {
    /// Parses a packet of a tun device: the header of virtio, IPv4 (RFC 791), TCP (RFC 9293).
    fn parse(packet: &[u8]) -> Option<Segment> {
        let ip = packet.get(VIRTIO_HEADER_LEN..)?;
        let first = *ip.first()?;
        if first >> 4 != 4 || *ip.get(9)? != TCP {
            return None;
        }
        let tcp = ip.get(usize::from(first & 15) * 4..)?;
        let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
        let header_len = usize::from(*tcp.get(12)? >> 4) * 4;
        Some(Segment {
            from: port(0)?,
            to: port(2)?,
            data_len: tcp.len().saturating_sub(header_len) as u64,
        })
    }
}

/// The bytes after which a connection stalls.
const STALL_AFTER: u64 = 1_000_000;

const VIRTIO_HEADER_LEN: usize = 10;
const TCP: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet from one port to another with data.
    fn packet(from: u16, to: u16, data: usize) -> Vec<u8> {
        let mut packet = vec![0; VIRTIO_HEADER_LEN + 40 + data];
        packet[VIRTIO_HEADER_LEN] = 0x45;
        packet[VIRTIO_HEADER_LEN + 9] = TCP;
        let tcp = VIRTIO_HEADER_LEN + 20;
        packet[tcp..tcp + 2].copy_from_slice(&from.to_be_bytes());
        packet[tcp + 2..tcp + 4].copy_from_slice(&to.to_be_bytes());
        packet[tcp + 12] = 5 << 4;
        packet
    }

    #[test]
    fn round_trips_and_bytes_are_counted_by_connection() {
        let shared = SharedTraffic::default();
        let (up, down) = (shared.direction(true), shared.direction(false));
        for _ in 0..3 {
            up.count(&packet(1000, 80, 10), None);
            up.count(&packet(1000, 80, 10), None);
            down.count(&packet(80, 1000, 100), None);
            down.count(&packet(80, 1000, 0), None);
        }
        up.count(&packet(1001, 80, 5), None);
        let traffic = Traffic {
            connections: 2,
            sent: 65,
            received: 300,
            round_trips_max: 3,
            has_stalled: false,
        };
        assert_eq!(shared.take(), traffic);
        assert_eq!(shared.take(), Traffic::default());
    }

    #[test]
    fn one_connection_stalls_in_each_run() {
        let shared = SharedTraffic::default();
        let (up, down) = (shared.direction(true), shared.direction(false));
        let large = STALL_AFTER as usize + 1;
        for _ in 0..2 {
            for port in [1000, 1001] {
                assert!(!up.count(&packet(port, 80, 5), Some(80)));
                assert!(!down.count(&packet(80, port, large), Some(80)));
                assert!(!down.count(&packet(81, port + 10, large), Some(80)));
            }
            assert!(down.count(&packet(80, 1000, 1), Some(80)));
            assert!(up.count(&packet(1000, 80, 0), Some(80)));
            assert!(!down.count(&packet(80, 1001, 1), Some(80)));
            assert!(!down.count(&packet(81, 1010, 1), Some(80)));
            assert!(shared.take().has_stalled);
        }
    }

    #[test]
    fn other_packets_have_no_data() {
        let whole = packet(1, 2, 7);
        assert_eq!(data_len(&whole), 7);
        for len in 0..VIRTIO_HEADER_LEN + 33 {
            assert_eq!(data_len(&whole[..len]), 0);
        }
    }
}
