//! The proxies in front of the server that may name the client of a request.
//!
//! The field `X-Forwarded-For` lists the client and the proxies on the way. Each proxy appends the
//! address that has connected to it. Everything before the entry of the first untrusted address
//! can be an invention of the client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// A proxy that may name the client of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// Every address of a network.
    Network(IpNet),
    /// Every program that connects to a Unix socket.
    Unix,
}

/// The text is neither an address, nor a network, nor `unix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a proxy; give an IP address, a network such as 10.0.0.0/8, or unix")]
pub struct NoProxy;

impl FromStr for TrustedProxy {
    type Err = NoProxy;

    fn from_str(text: &str) -> Result<TrustedProxy, NoProxy> {
        if text == UNIX {
            return Ok(TrustedProxy::Unix);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(TrustedProxy::Network(address.to_canonical().into()));
        }
        let network: IpNet = text.parse().map_err(|_| NoProxy)?;
        Ok(TrustedProxy::Network(network.trunc()))
    }
}

impl fmt::Display for TrustedProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrustedProxy::Unix => formatter.write_str(UNIX),
            TrustedProxy::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                network.addr().fmt(formatter)
            }
            TrustedProxy::Network(network) => network.fmt(formatter),
        }
    }
}

const UNIX: &str = "unix";

/// All trusted proxies of a server.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies(Vec<TrustedProxy>);

impl From<Vec<TrustedProxy>> for TrustedProxies {
    fn from(proxies: Vec<TrustedProxy>) -> TrustedProxies {
        TrustedProxies(proxies)
    }
}

impl TrustedProxies {
    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a peer is a trusted proxy. `None` stands for the peer of a Unix socket.
    pub(crate) fn contains(&self, peer: Option<IpAddr>) -> bool {
        self.0.iter().any(|proxy| match (proxy, peer) {
            (TrustedProxy::Unix, None) => true,
            (TrustedProxy::Network(network), Some(peer)) => network.contains(&peer.to_canonical()),
            _ => false,
        })
    }

    /// Returns the client that `X-Forwarded-For` names: the last address that is not a trusted
    /// proxy, or the first address if all are. The values are those of all fields, in their order.
    ///
    /// Returns `None` if the last entry is not an address.
    pub(crate) fn client(&self, forwarded_for: &[&[u8]]) -> Option<IpAddr> {
        let entries = forwarded_for.iter().rev();
        let entries = entries.flat_map(|value| value.rsplit(|byte| *byte == b',').map(address));
        let mut client = None;
        for entry in entries {
            let Some(address) = entry else { break };
            client = Some(address);
            if !self.contains(client) {
                break;
            }
        }
        client
    }
}

/// Parses an entry: an address, in some proxies with a port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim();
    let bare = entry
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address = match bare.unwrap_or(entry).parse() {
        Ok(address) => address,
        Err(_) => entry.parse::<SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proxies(texts: &[&str]) -> TrustedProxies {
        let proxies = texts.iter().map(|text| text.parse().unwrap());
        TrustedProxies::from(proxies.collect::<Vec<_>>())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn proxy_is_an_address_a_network_or_unix() {
        for (text, printed) in [
            ("unix", "unix"),
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("2001:db8::/32", "2001:db8::/32"),
        ] {
            let proxy: TrustedProxy = text.parse().unwrap();
            assert_eq!(proxy.to_string(), printed);
            assert_eq!(printed.parse(), Ok(proxy));
        }
        for text in ["", "proxy.example", "10.0.0.0/33", "unix:/socket", "*"] {
            assert_eq!(text.parse::<TrustedProxy>(), Err(NoProxy), "{text}");
        }
    }

    #[test]
    fn peer_is_compared_with_each_proxy() {
        let proxies = proxies(&["10.0.0.0/8", "2001:db8::1", "unix"]);
        for peer in ["10.255.0.1", "::ffff:10.0.0.1", "2001:db8::1"] {
            assert!(proxies.contains(Some(ip(peer))), "{peer}");
        }
        for peer in ["11.0.0.1", "2001:db8::2"] {
            assert!(!proxies.contains(Some(ip(peer))), "{peer}");
        }
        assert!(proxies.contains(None));
        assert!(!TrustedProxies::default().contains(None));
    }

    #[test]
    fn client_is_the_last_address_that_is_no_proxy() {
        let proxies = proxies(&["10.0.0.0/8"]);
        for (values, client) in [
            (&["192.0.2.1"][..], Some("192.0.2.1")),
            (&["198.51.100.9, 192.0.2.1"], Some("192.0.2.1")),
            (&["198.51.100.9, 192.0.2.1, 10.0.0.2"], Some("192.0.2.1")),
            (
                &["198.51.100.9", "192.0.2.1", "10.0.0.2"],
                Some("192.0.2.1"),
            ),
            (&["10.0.0.3,10.0.0.2"], Some("10.0.0.3")),
            (&["192.0.2.1:4711"], Some("192.0.2.1")),
            (&["[2001:db8::1]:4711"], Some("2001:db8::1")),
            (&["[2001:db8::1]"], Some("2001:db8::1")),
            (&["::ffff:192.0.2.1"], Some("192.0.2.1")),
            (&["192.0.2.1, unknown, 10.0.0.2"], Some("10.0.0.2")),
            (&["192.0.2.1, unknown"], None),
            (&[""], None),
            (&[], None),
        ] {
            let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(proxies.client(&values), client.map(ip), "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn client_cannot_choose_what_the_proxy_appends(invented: Vec<u8>) {
            let proxies = proxies(&["10.0.0.0/8"]);
            let appended = [&invented, &b", 192.0.2.1"[..]].concat();
            prop_assert_eq!(proxies.client(&[&appended]), Some(ip("192.0.2.1")));
            prop_assert_eq!(proxies.client(&[&invented, b"192.0.2.1"]), Some(ip("192.0.2.1")));
        }
    }
}
