//! Redirects from plain HTTP to HTTPS.

use std::net::Ipv6Addr;

use crate::context::Context;
use crate::http::refusal::Refusal;
use crate::http::request::Request;
use crate::http::response::Response;

/// Responds with the URL of the same object over HTTPS.
pub(crate) fn respond(context: &Context, request: &Request<'_>) -> Response {
    let host = request.checked_host().map(without_port);
    let Some(host) = host.filter(|host| is_host(host) && request.target.starts_with('/')) else {
        return Response::refused(Refusal::InvalidHost);
    };
    let port = match context.https_port {
        None | Some(443) => String::new(),
        Some(port) => format!(":{port}"),
    };
    Response::redirect(&format!("https://{host}{port}{}", request.target))
}

/// Returns the name or the address of a host, without its port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a text is a name, or an address as a URL has it.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => {
            let address = rest.strip_suffix(']');
            address.is_some_and(|it| it.parse::<Ipv6Addr>().is_ok())
        }
        None => !text.is_empty() && !text.contains([':', '[', ']']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_removed() {
        for (host, name) in [
            ("cache.example.org", "cache.example.org"),
            ("cache.example.org:8080", "cache.example.org"),
            ("[::1]:8080", "[::1]"),
            ("[::1]", "[::1]"),
            ("10.0.0.1:", "10.0.0.1"),
        ] {
            assert_eq!(without_port(host), name, "{host}");
            assert!(is_host(name), "{host}");
        }
        for host in ["::1", ":80", "[", "[::1", "a:80:80", "[a]"] {
            assert!(!is_host(without_port(host)), "{host}");
        }
    }
}
