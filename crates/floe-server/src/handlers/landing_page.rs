//! `/`: the page for people. Browsers get HTML, others text.

use std::sync::LazyLock;

use floe_format::Hash;

use crate::context::Context;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::landing_page::STYLE;

/// Responds with the page, in the form that the client prefers.
pub(crate) fn respond(context: &Context, request: &Request<'_>) -> Response {
    let page = context.landing_page.read().clone();
    let Some(page) = page else {
        return Response::not_found("not found\n");
    };
    let url = url(context, request);
    if request.accepts_html && !page.is_plain {
        let fields = format!("{HTML_FIELDS}Content-Security-Policy: {}\r\n", *POLICY);
        Response::text(200, fields, page.html(&url))
    } else {
        Response::text(200, TEXT_FIELDS, page.text(&url))
    }
}

/// Returns the address of the cache as the client knows it.
fn url(context: &Context, request: &Request<'_>) -> String {
    let host = request.checked_host().unwrap_or("cache.example.org");
    let scheme = if context.uses_tls || request.is_forwarded_https {
        "https"
    } else {
        "http"
    };
    format!("{scheme}://{host}{}", context.prefix)
}

/// The policy that lets a browser use the style of the page, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = Hash::sha256(floe_hash::sha256(STYLE.as_bytes())).digest_base64();
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

const HTML_FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-cache\r\n\
     Vary: Accept, Host\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";
const TEXT_FIELDS: &str =
    "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-cache\r\nVary: Accept, Host\r\n";
