//! Answers that send somewhere else, which are followed by hand: each host is told who asks by what
//! the logins say of that very host, and by nothing that was meant for another one.

use std::ops::ControlFlow;

use floe_transfer::Error;
use floe_transfer::url::redact;
use reqwest::header::LOCATION;
use reqwest::{RequestBuilder, Response, StatusCode, Url};

use super::network::HttpContext;

/// Why there is no answer.
pub(super) enum SendError {
    /// A request failed.
    Request(reqwest::Error),
    /// It leads nowhere.
    Redirect(Error),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct RequestTarget {
    pub(super) url: Url,
    /// Who named it did so over TLS.
    named_over_tls: bool,
}

impl From<Url> for RequestTarget {
    /// What the user has named.
    fn from(url: Url) -> RequestTarget {
        RequestTarget {
            url,
            named_over_tls: false,
        }
    }
}

impl RequestTarget {
    /// What a cache has named: another host may be meant, as where it sends a request on.
    pub(super) fn named_by_cache(cache: &Url, mut url: Url) -> RequestTarget {
        copy_credentials(cache, &mut url);
        RequestTarget {
            url,
            named_over_tls: cache.scheme() == "https",
        }
    }
}

/// Asks for something, or for where that leads; each request is changed in the same way.
pub(super) async fn send(
    context: &HttpContext,
    target: &RequestTarget,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<Response, SendError> {
    let first = &target.url;
    let mut url = first.clone();
    let mut named_over_tls = target.named_over_tls;
    for _ in 0..=REDIRECTS_MAX {
        // Who was promised that nobody listens is not overheard by sending him elsewhere. Nix has
        // no such scruple.
        let is_downgrade = named_over_tls && url.scheme() != "https";
        named_over_tls |= url.scheme() == "https";
        let request = match is_downgrade {
            true => context.client.get_without_credentials(&url),
            false => context.client.get(&url),
        };
        let response = change(request).send().await.map_err(SendError::Request)?;
        match redirect_target(&response, &url, first).map_err(SendError::Redirect)? {
            ControlFlow::Break(()) => return Ok(response),
            ControlFlow::Continue(to) => url = to,
        }
    }
    let reason = format!(
        "too many redirects: after {REDIRECTS_MAX} it leads to {}",
        redact(&url)
    );
    Err(SendError::Redirect(Error::fetch(
        &redact(first),
        reason,
        false,
    )))
}

/// Where an answer sends whoever asked for `from`, or that it is the last.
fn redirect_target(
    response: &Response,
    from: &Url,
    first: &Url,
) -> Result<ControlFlow<(), Url>, Error> {
    let location = response.headers().get(LOCATION);
    let location = location.filter(|_| REDIRECT_STATUSES.contains(&response.status()));
    let Some(location) = location else {
        return Ok(ControlFlow::Break(()));
    };
    let redirect_error = |what: String| {
        let reason = format!(
            "the server answered {} and sent to {what}",
            response.status()
        );
        Error::fetch(&redact(first), reason, false)
    };
    let text = String::from_utf8_lossy(location.as_bytes());
    let mut to = from
        .join(&text)
        .map_err(|error| redirect_error(format!("no address: {error}")))?;
    if !["http", "https"].contains(&to.scheme()) {
        return Err(redirect_error(format!(
            "{}, where floe cannot ask",
            redact(&to)
        )));
    }
    copy_credentials(first, &mut to);
    Ok(ControlFlow::Continue(to))
}

/// What the user wrote into the URL is for that host, with that scheme and port, alone.
fn copy_credentials(first: &Url, to: &mut Url) {
    let has_own = !to.username().is_empty() || to.password().is_some();
    if !has_own && to.origin() == first.origin() {
        let _: Result<(), ()> = to.set_username(first.username());
        let _: Result<(), ()> = to.set_password(first.password());
    }
}

/// Those that name another place for the same thing. RFC 9110, section 15.4.
const REDIRECT_STATUSES: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// As many as browsers and the library that sends our requests follow.
const REDIRECTS_MAX: usize = 10;
