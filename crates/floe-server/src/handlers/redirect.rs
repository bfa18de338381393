//! Redirects from plain HTTP to HTTPS.

use crate::context::Context;
use crate::http::refusal::Refusal;
use crate::http::request::Request;
use crate::http::response::Response;

/// Responds with the URL of the same object over HTTPS.
pub(crate) fn respond(context: &Context, request: &Request<'_>) -> Response {
    let host = request.checked_host().map(without_port);
    let Some(host) = host.filter(|_| request.target.starts_with('/')) else {
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
        }
    }
}
