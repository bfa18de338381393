//! Parses addresses to listen on, in the forms of floe, starman, nix-serve-ng and harmonia.

use std::path::PathBuf;

use super::Listen;

/// The reason why an address is rejected, as a message for the operator.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AddressError(pub String);

/// Parses `HOST:PORT`, `:PORT`, `[IPV6]:PORT`, `unix:PATH` or a path with a slash in it.
///
/// Errors: any other text.
pub fn parse(text: &str) -> Result<Listen, AddressError> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Listen::Unix(PathBuf::from(path)));
    }
    if let Some(address) = without_ssl(text) {
        return Err(AddressError(format!(
            "cannot listen on {text}: the suffix :ssl is that of starman; try {address} with \
             --tls-cert and --tls-key"
        )));
    }
    match parse_tcp(text)? {
        Some(tcp) => Ok(tcp),
        None if text.contains('/') => Ok(Listen::Unix(PathBuf::from(text))),
        None => Err(AddressError(format!(
            "cannot listen on {text:?}: not an address; try HOST:PORT, :PORT, [IPV6]:PORT, or the \
             path of a Unix socket with a slash in it"
        ))),
    }
}

/// An address in the form of starman.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StarmanAddress {
    /// The address.
    pub listen: Listen,
    /// Whether it ends in `:ssl`.
    pub has_ssl: bool,
}

/// Parses an address as starman does: every text that does not end in a port, or in a port and
/// `:ssl`, is the path of a Unix socket.
///
/// Errors: an empty text.
pub fn parse_starman(text: &str) -> Result<StarmanAddress, AddressError> {
    if text.is_empty() {
        return Err(AddressError(
            "cannot listen on an empty address; try HOST:PORT".into(),
        ));
    }
    let (address, has_ssl) = match without_ssl(text) {
        Some(address) => (address, true),
        None => (text, false),
    };
    let listen = parse_tcp(address)?
        .unwrap_or_else(|| Listen::Unix(PathBuf::from(text.strip_prefix("unix:").unwrap_or(text))));
    Ok(StarmanAddress { listen, has_ssl })
}

/// Parses a host without a port: removes the brackets of an IPv6 address, and translates the
/// wildcards of nix-serve-ng.
///
/// In nix-serve-ng, `*6` prefers IPv6 but also accepts IPv4, and `!6` accepts IPv6 only. `*4` and
/// `!4` both accept IPv4 only.
pub fn parse_host(text: &str) -> String {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match bare.unwrap_or(text) {
        "" | "*6" => "*".into(),
        "!4" => "*4".into(),
        "!6" => "*6".into(),
        host => host.into(),
    }
}

/// Returns the TCP address before the suffix `:ssl`.
fn without_ssl(text: &str) -> Option<&str> {
    let (address, last) = text.rsplit_once(':')?;
    let (_, port) = address.rsplit_once(':')?;
    (last.eq_ignore_ascii_case("ssl") && is_port(port)).then_some(address)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns `None` if the text is not a TCP address.
fn parse_tcp(text: &str) -> Result<Option<Listen>, AddressError> {
    let Some((before, port)) = text.rsplit_once(':').filter(|(_, port)| is_port(port)) else {
        return Ok(None);
    };
    if before.contains('/') {
        return Ok(None);
    }
    let port = port.parse().map_err(|_| {
        AddressError(format!(
            "cannot listen on {text}: the port is higher than {}",
            u16::MAX
        ))
    })?;
    if before.contains(':') && !before.starts_with('[') {
        return Err(AddressError(format!(
            "cannot listen on {text}: an IPv6 address needs brackets; try [::1]:5000"
        )));
    }
    // This is the form that floe itself prints for IPv6 only. `--host` gives it another meaning.
    let host = match before {
        "*6" => "*6".into(),
        before => parse_host(before),
    };
    Ok(Some(Listen::Tcp { host, port }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16) -> Listen {
        let host = host.to_owned();
        Listen::Tcp { host, port }
    }

    fn starman(text: &str) -> (Listen, bool) {
        let address = parse_starman(text).unwrap();
        (address.listen, address.has_ssl)
    }

    #[test]
    fn address_forms_of_all_peers_are_parsed() {
        for (text, listen) in [
            ("127.0.0.1:5000", tcp("127.0.0.1", 5000)),
            ("localhost:80", tcp("localhost", 80)),
            (":8080", tcp("*", 8080)),
            ("*:5000", tcp("*", 5000)),
            ("!4:5000", tcp("*4", 5000)),
            ("[::1]:0", tcp("::1", 0)),
            ("unix:/run/floe", Listen::Unix("/run/floe".into())),
            ("/run/floe", Listen::Unix("/run/floe".into())),
            ("./a:5000", Listen::Unix("./a:5000".into())),
        ] {
            assert_eq!(parse(text).unwrap(), listen, "{text}");
            assert_eq!(starman(text), (listen, false), "{text}");
        }
    }

    #[test]
    fn bare_word_is_a_socket_only_for_starman() {
        let socket = Listen::Unix("5000".into());
        assert_eq!(starman("5000"), (socket, false));
        assert!(parse("5000").unwrap_err().0.contains("HOST:PORT"));
        assert!(parse("").is_err() && parse_starman("").is_err());
    }

    #[test]
    fn suffix_for_tls_is_known_to_starman_only() {
        for (text, listen) in [
            ("localhost:443:ssl", tcp("localhost", 443)),
            (":443:SSL", tcp("*", 443)),
            ("[::1]:443:ssl", tcp("::1", 443)),
        ] {
            assert_eq!(starman(text), (listen, true), "{text}");
            let message = parse(text).unwrap_err().0;
            assert!(
                message.contains(text) && message.contains("--tls-cert"),
                "{message}"
            );
        }
    }

    #[test]
    fn high_port_and_unbracketed_ipv6_are_rejected() {
        assert!(parse(":65536").unwrap_err().0.contains("65535"));
        assert!(parse("::1:5000").unwrap_err().0.contains("brackets"));
    }

    #[test]
    fn wildcard_hosts_of_nix_serve_ng_keep_their_meaning() {
        for (text, meaning) in [
            ("*", "*"),
            ("*4", "*4"),
            ("!4", "*4"),
            ("*6", "*"),
            ("!6", "*6"),
            ("[::1]", "::1"),
            ("", "*"),
        ] {
            assert_eq!(parse_host(text), meaning);
        }
    }

    fn listens() -> impl Strategy<Value = Listen> {
        let hosts = prop_oneof![
            "[a-z][a-z0-9.-]{0,20}",
            any::<std::net::Ipv4Addr>().prop_map(|ip| ip.to_string()),
            any::<std::net::Ipv6Addr>().prop_map(|ip| ip.to_string()),
            Just("*".to_owned()),
            Just("*4".to_owned()),
            Just("*6".to_owned()),
        ];
        prop_oneof![
            (hosts, any::<u16>()).prop_map(|(host, port)| Listen::Tcp { host, port }),
            "[ -~]{1,40}".prop_map(|path| Listen::Unix(path.into())),
        ]
    }

    proptest! {
        #[test]
        fn printed_address_parses_to_itself(listen in listens()) {
            prop_assert_eq!(parse(&listen.to_string()).unwrap(), listen);
        }
    }
}
