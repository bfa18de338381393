//! The header of the PROXY protocol, with which a proxy names the client of a connection before its
//! first byte (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>).

use std::net::IpAddr;

use proxy_header::{Error, ParseConfig, ProxyHeader};

/// The result of parsing the beginning of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedHeader {
    /// More bytes are needed.
    Incomplete,
    /// A header.
    Complete {
        /// Its length in bytes.
        len: usize,
        /// The address of the client. `None` if the proxy has connected for itself, as for a health
        /// check, or for a client without an IP address.
        client: Option<IpAddr>,
    },
    /// No header, or a longer one than the server accepts.
    Invalid,
}

/// Parses the header at the start of some bytes, in version 1 or 2.
pub fn parse(bytes: &[u8]) -> ParsedHeader {
    let config = ParseConfig {
        include_tlvs: false,
        allow_v1: true,
        allow_v2: true,
    };
    match ProxyHeader::parse(bytes, config) {
        Ok((_, len)) if len > HEADER_LEN_MAX => ParsedHeader::Invalid,
        Ok((_, len)) if bytes.starts_with(b"P") && len > TEXT_LEN_MAX => ParsedHeader::Invalid,
        Ok((header, len)) => {
            let client = header.proxied_address().map(|it| it.source.ip());
            let client = client.map(|address| address.to_canonical());
            ParsedHeader::Complete { len, client }
        }
        Err(Error::BufferTooShort) if bytes.len() < HEADER_LEN_MAX => ParsedHeader::Incomplete,
        Err(_) => ParsedHeader::Invalid,
    }
}

/// The longest header. One with a certificate of the client has some hundred bytes.
pub const HEADER_LEN_MAX: usize = 4096;

/// The longest header of version 1, as the protocol says.
const TEXT_LEN_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;
    use proxy_header::ProxiedAddress;

    use super::*;

    /// Returns a header of a version for a client.
    pub(crate) fn header(version: u8, client: SocketAddr) -> Vec<u8> {
        let destination = match client {
            SocketAddr::V4(_) => "192.0.2.2:443",
            SocketAddr::V6(_) => "[2001:db8::2]:443",
        };
        let destination = destination.parse().unwrap();
        let header = ProxyHeader::with_address(ProxiedAddress::stream(client, destination));
        let mut bytes = vec![0; 1024];
        let len = match version {
            1 => header.encode_to_slice_v1(&mut bytes),
            _ => header.encode_to_slice_v2(&mut bytes),
        };
        bytes.truncate(len.unwrap());
        bytes
    }

    #[test]
    fn client_is_read_from_both_versions_without_what_follows() {
        for (version, client) in [
            (1, "198.51.100.7:4711"),
            (1, "[2001:db8::7]:4711"),
            (2, "198.51.100.7:4711"),
            (2, "[2001:db8::7]:4711"),
        ] {
            let client: SocketAddr = client.parse().unwrap();
            let header = header(version, client);
            let len = header.len();
            for end in 0..len {
                assert_eq!(parse(&header[..end]), ParsedHeader::Incomplete, "{version}");
            }
            let client = Some(client.ip());
            let complete = ParsedHeader::Complete { len, client };
            assert_eq!(parse(&[&header[..], b"GET /"].concat()), complete);
        }
    }

    #[test]
    fn health_check_has_no_client() {
        for header in [&b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"[..], b"PROXY UNKNOWN\r\n"] {
            let len = header.len();
            let client = None;
            assert_eq!(parse(header), ParsedHeader::Complete { len, client });
        }
    }

    #[test]
    fn request_and_long_header_are_invalid() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\n\r\n"), ParsedHeader::Invalid);
        assert_eq!(parse(b"PROXY TCP4 a b 1 2\r\n"), ParsedHeader::Invalid);
        let unknown = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        assert_eq!(parse(unknown.as_bytes()), ParsedHeader::Invalid);
        let mut long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
        long.resize(HEADER_LEN_MAX - 1, 0);
        assert_eq!(parse(&long), ParsedHeader::Incomplete);
        long.push(0);
        assert_eq!(parse(&long), ParsedHeader::Invalid);
        long.resize(100_000, 0);
        assert_eq!(parse(&long), ParsedHeader::Invalid);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>, start in 0usize..3) {
            let start: &[u8] = [&b""[..], b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT\n\x21"][start];
            let bytes = [start, &bytes].concat();
            if let ParsedHeader::Complete { len, .. } = parse(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }
}
