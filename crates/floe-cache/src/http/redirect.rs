//! Redirects. floe follows them itself, so that each host gets only its own credentials.

use floe_transfer::Error;
use floe_transfer::url::redact;
use reqwest::header::LOCATION;
use reqwest::{RequestBuilder, Response, Url};
use tokio::time::timeout;

use super::limiter::RequestPermits;
use super::network::HttpContext;
use super::request::stall_error;

/// The target of a request.
#[derive(Clone, Debug)]
pub(super) struct RequestTarget {
    pub(super) url: Url,
    /// Whether the URL is that of a server with TLS, or came from one.
    named_over_tls: bool,
}

impl RequestTarget {
    /// Makes the target of a URL of a cache, or of one that it named. The latter may be on another
    /// host, as with a redirect.
    pub(super) fn of_cache(cache: &Url, mut url: Url) -> RequestTarget {
        copy_credentials(cache, &mut url);
        RequestTarget {
            url,
            named_over_tls: cache.scheme() == "https",
        }
    }
}

/// Sends a request and follows redirects. Applies `change` to each request. The outer error means
/// that floe cannot follow a redirect, or that a server does not respond.
pub(super) async fn send(
    context: &HttpContext,
    (target, held): (&RequestTarget, &mut RequestPermits),
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<reqwest::Result<Response>, Error> {
    let (client, options) = (&context.client, &context.options);
    let first = &target.url;
    let mut url = first.clone();
    let mut named_over_tls = target.named_over_tls;
    for _ in 0..=REDIRECTS_MAX {
        // After TLS, credentials must not go over plain HTTP. Nix sends them all the same.
        let is_downgrade = named_over_tls && url.scheme() != "https";
        named_over_tls |= url.scheme() == "https";
        let request = match is_downgrade {
            true => client.get_without_credentials(&url),
            false => client.get(&url),
        };
        // The time of waiting for a connection does not count: the server does not stall.
        context.limits.acquire_redirected(held, &url).await;
        let sent = timeout(options.stall_timeout, change(request).send()).await;
        let response = match sent.map_err(|_| stall_error(options, &redact(first)))? {
            Ok(response) => response,
            failed => return Ok(failed),
        };
        context.limits.observe(held, &response);
        match redirect_target(&response, &url, first)? {
            None => return Ok(Ok(response)),
            Some(to) => url = to,
        }
    }
    let reason = format!(
        "too many redirects: after {REDIRECTS_MAX} it leads to {}",
        redact(&url)
    );
    Err(Error::fetch(&redact(first), reason, false))
}

/// Returns the target of a redirect, or `None` for a final response.
fn redirect_target(response: &Response, from: &Url, first: &Url) -> Result<Option<Url>, Error> {
    let location = response.headers().get(LOCATION);
    // The statuses that name another URL for the same resource. RFC 9110, section 15.4.
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let location = location.filter(|_| is_redirect);
    let Some(location) = location else {
        return Ok(None);
    };
    let redirect_error = |what: String| {
        let reason = format!(
            "the server answered {} and redirected to {what}",
            response.status()
        );
        Error::fetch(&redact(first), reason, false)
    };
    let text = String::from_utf8_lossy(location.as_bytes());
    let mut to = from
        .join(&text)
        .map_err(|error| redirect_error(format!("an invalid URL: {error}")))?;
    if !["http", "https"].contains(&to.scheme()) {
        return Err(redirect_error(format!(
            "{}, which floe cannot fetch",
            redact(&to)
        )));
    }
    copy_credentials(first, &mut to);
    Ok(Some(to))
}

/// Copies the credentials of the first URL if the other one has the same scheme, host and port.
fn copy_credentials(first: &Url, to: &mut Url) {
    let has_own = !to.username().is_empty() || to.password().is_some();
    if !has_own && to.origin() == first.origin() {
        let _: Result<(), ()> = to.set_username(first.username());
        let _: Result<(), ()> = to.set_password(first.password());
    }
}

/// The number of redirects that floe follows, as reqwest does by default.
const REDIRECTS_MAX: usize = 10;
