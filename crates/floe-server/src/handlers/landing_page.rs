//! `/`: the page for people. Browsers get HTML, others text.

use crate::context::Context;
use crate::html;
use crate::http::request::Request;
use crate::http::response::Response;

/// Responds with the page, in the form that the client prefers.
pub(crate) fn respond(context: &Context, request: &Request<'_>) -> Response {
    let page = context.landing_page.read().clone();
    let Some(page) = page else {
        return Response::not_found("not found\n");
    };
    let url = url(context, request);
    if request.accepts_html && !page.is_plain {
        html::respond(200, KEPT_FIELDS, page.html(&url))
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

const KEPT_FIELDS: &str = "Cache-Control: no-cache\r\nVary: Accept, Host\r\n";
const TEXT_FIELDS: &str =
    "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-cache\r\nVary: Accept, Host\r\n";
