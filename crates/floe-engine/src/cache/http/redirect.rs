//! Answers that send somewhere else, which are followed by hand: each host is told who asks by what
//! the logins say of that very host, and by nothing that was meant for another one.

use std::ops::ControlFlow;

use reqwest::header::LOCATION;
use reqwest::{RequestBuilder, Response, StatusCode, Url};

use super::network::Web;
use crate::error::Error;
use crate::url::redact;

/// Why there is no answer.
pub(super) enum Lost {
    /// A request failed.
    Request(reqwest::Error),
    /// It leads nowhere.
    Nowhere(Error),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    pub(super) url: Url,
    /// Who named it did so over TLS.
    was_secret: bool,
}

impl From<Url> for Goal {
    /// What the user has named.
    fn from(url: Url) -> Goal {
        Goal {
            url,
            was_secret: false,
        }
    }
}

impl Goal {
    /// What a cache has named: another host may be meant, as where it sends a request on.
    pub(super) fn named_by(cache: &Url, mut url: Url) -> Goal {
        keep_login(cache, &mut url);
        Goal {
            url,
            was_secret: cache.scheme() == "https",
        }
    }
}

/// Asks for something, or for where that leads; each request is changed in the same way.
pub(super) async fn send(
    web: &Web,
    goal: &Goal,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<Response, Lost> {
    let first = &goal.url;
    let mut url = first.clone();
    let mut was_secret = goal.was_secret;
    for _ in 0..=REDIRECTS_MAX {
        // Who was promised that nobody listens is not overheard by sending him elsewhere. Nix has
        // no such scruple.
        let is_overheard = was_secret && url.scheme() != "https";
        was_secret |= url.scheme() == "https";
        let request = match is_overheard {
            true => web.logins.request_of_nobody(&web.client, &url),
            false => web.logins.request(&web.client, &url),
        };
        let response = change(request).send().await.map_err(Lost::Request)?;
        match next(&response, &url, first).map_err(Lost::Nowhere)? {
            ControlFlow::Break(()) => return Ok(response),
            ControlFlow::Continue(to) => url = to,
        }
    }
    let reason = format!(
        "too many redirects: after {REDIRECTS_MAX} it leads to {}",
        redact(&url)
    );
    Err(Lost::Nowhere(Error::fetch(&redact(first), reason, false)))
}

/// Where an answer sends whoever asked for `from`, or that it is the last.
fn next(response: &Response, from: &Url, first: &Url) -> Result<ControlFlow<(), Url>, Error> {
    let location = response.headers().get(LOCATION);
    let location = location.filter(|_| SENT_ON.contains(&response.status()));
    let Some(location) = location else {
        return Ok(ControlFlow::Break(()));
    };
    let nowhere = |what: String| {
        let reason = format!(
            "the server answered {} and sent to {what}",
            response.status()
        );
        Error::fetch(&redact(first), reason, false)
    };
    let text = String::from_utf8_lossy(location.as_bytes());
    let mut to = from
        .join(&text)
        .map_err(|error| nowhere(format!("no address: {error}")))?;
    if !["http", "https"].contains(&to.scheme()) {
        return Err(nowhere(format!("{}, where floe cannot ask", redact(&to))));
    }
    keep_login(first, &mut to);
    Ok(ControlFlow::Continue(to))
}

/// What the user wrote into the URL is for that host, with that scheme and port, alone.
fn keep_login(first: &Url, to: &mut Url) {
    let has_own = !to.username().is_empty() || to.password().is_some();
    if !has_own && to.origin() == first.origin() {
        let _: Result<(), ()> = to.set_username(first.username());
        let _: Result<(), ()> = to.set_password(first.password());
    }
}

/// Those that name another place for the same thing. RFC 9110, section 15.4.
const SENT_ON: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// As many as browsers and the library that sends our requests follow.
const REDIRECTS_MAX: usize = 10;
