//! Redirects. floe follows them itself, so that each host gets only its own credentials.

use floe_transfer::Error;
use floe_transfer::url::redact;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName,
    IF_NONE_MATCH, LOCATION,
};
use reqwest::{RequestBuilder, Response, StatusCode, Url, Version};

use super::Request;
use super::auth;
use super::body::Progress;
use super::client::CacheClient;
use super::failure;
use super::server;
use super::target::copy_credentials;

/// Sends a request over the connections that it holds, and follows redirects. Applies `change` to
/// each request.
pub(crate) async fn send(
    client: &CacheClient,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<Response, Error> {
    let sent = follow(client, request, change).await?;
    sent.map_err(|error| failure::of_request(client, request, &error))
}

/// Sends a request and follows redirects. The outer error means that floe cannot follow a redirect,
/// or that a server does not respond.
async fn follow(
    client: &CacheClient,
    request: &mut Request,
    change: impl Fn(RequestBuilder) -> RequestBuilder,
) -> Result<reqwest::Result<Response>, Error> {
    let first = &request.target.url.clone();
    let mut url = first.clone();
    let mut named_over_tls = request.target.named_over_tls;
    for _ in 0..=REDIRECTS_MAX {
        // After TLS, credentials must not go over plain HTTP. Nix sends them all the same.
        let is_downgrade = named_over_tls && url.scheme() != "https";
        if is_downgrade && request.message.needs_tls {
            let reason = format!("the server redirected from https to {}", redact(&url));
            return Err(Error::fetch(&request.shown(), reason, false));
        }
        named_over_tls |= url.scheme() == "https";
        // The time of waiting for a connection does not count: the server does not stall.
        let limits = &client.network.limits;
        limits.acquire_redirected(&mut request.held, &url).await;
        let bulk = request.bulk_client.as_ref();
        let bulk = bulk.filter(|_| limits.uses_http2(&url));
        let (sender, is_bulk) = (client.clients.get(bulk), bulk.is_some());
        let message = &mut request.message;
        let mut builder = auth::without_credentials(sender, message.method.clone(), &url);
        builder = builder.headers(message.headers.clone());
        let progress = Progress::default();
        if let Some(body) = message.body.make(&progress) {
            builder = builder.body(body);
        }
        if let Some(netrc) = client.netrc.as_ref().filter(|_| !is_downgrade) {
            builder = auth::add_credentials(builder, netrc, &url);
        }
        let mut built = match change(builder).build() {
            Ok(built) => built,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(dialect) = &client.dialect {
            dialect.sign(&mut built, &message.body).await?;
        }
        let wait = request.head_wait.time();
        let sent = progress.until_stalled(wait, sender.execute(built)).await;
        let response = match sent.map_err(|_| request.head_stalled())? {
            Ok(response) => response,
            Err(error) => {
                if is_bulk {
                    // The host may have stopped to speak HTTP/2. The next response shows it.
                    limits.set_http2(&url, Version::HTTP_11);
                }
                return Ok(Err(error));
            }
        };
        limits.observe(&mut request.held, &response);
        client.server.get_or_init(|| server::of_response(&response));
        match target_of(request, &response, (&url, first))? {
            None => return Ok(Ok(response)),
            Some(to) => url = to,
        }
        if url.origin() != first.origin() {
            keep_only(&mut request.message.headers, &NOT_SECRET);
        }
    }
    if request.message.hides_query {
        url.set_query(None);
    }
    let reason = format!(
        "too many redirects: after {REDIRECTS_MAX} it leads to {}",
        redact(&url)
    );
    Err(Error::fetch(&request.shown(), reason, false))
}

/// Returns the target of a redirect that floe may follow.
///
/// Errors: the target is invalid, or a write would be repeated at a place that accepts anything.
fn target_of(
    request: &Request,
    response: &Response,
    (url, first): (&Url, &Url),
) -> Result<Option<Url>, Error> {
    let target = redirect_target(response, url, first).map_err(|error| {
        if request.message.hides_query {
            // Its text may repeat a token.
            Error::fetch(&request.shown(), NO_TARGET, false)
        } else {
            error
        }
    })?;
    let status = response.status();
    match target {
        // Another status may lead to a web page, which accepts anything.
        Some(mut to) if request.message.is_write() && !REPEATED.contains(&status) => {
            // It may repeat a token.
            to.set_query(None);
            let reason = format!(
                "the server answered {status} and redirected to {}",
                redact(&to)
            );
            Err(Error::fetch(&request.shown(), reason, false))
        }
        target => Ok(target),
    }
}

/// Removes all headers but those with some names.
fn keep_only(headers: &mut HeaderMap, names: &[HeaderName]) {
    let kept = names.iter().filter_map(|name| {
        let value = headers.get(name)?.clone();
        Some((name.clone(), value))
    });
    *headers = kept.collect();
}

/// The headers that another server may see. A request for credentials has tokens in further ones.
const NOT_SECRET: [HeaderName; 6] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    IF_NONE_MATCH,
];

const NO_TARGET: &str = "the server redirected to a place where floe cannot follow";

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

/// The statuses after which a client repeats the same request. RFC 9110, section 15.4.
const REPEATED: [StatusCode; 2] = [
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// The number of redirects that floe follows, as reqwest does by default.
const REDIRECTS_MAX: usize = 10;
