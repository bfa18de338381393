//! Carries the requests of object_store over floe's HTTP client: its connections, its limits, its
//! retries. object_store makes no second attempt.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use floe_transfer::Error;
use floe_transfer::url::{parse_url, redact};
use http_body_util::BodyExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::{ClientOptions, RetryConfig};
use reqwest::Url;
use tokio::time::timeout;

use super::deletion::names_requested_keys;
use super::list_page::without_foreign_names;
use super::message::explain;
use crate::http::write_failure;
use crate::request::{CacheClient, Message, RequestBody, exchange};

/// The HTTP client of object_store.
#[derive(Clone, Debug)]
pub(crate) struct Connector(pub(crate) Arc<CacheClient>);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// Leaves all attempts to floe's client.
pub(crate) fn no_retries() -> RetryConfig {
    RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    }
}

type Reply<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Connector {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Reply<'a>
    where
        's: 'a,
        Self: 'a,
    {
        Box::pin(async move { self.send(request).await.map_err(into_http_error) })
    }
}

impl Connector {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let (head, body) = request.into_parts();
        let url = parse_url(&head.uri.to_string())?;
        // The body is in memory, so nothing can fail.
        let body = body.collect().await.map(|body| body.to_bytes());
        let message = Message {
            method: head.method,
            headers: head.headers,
            body: match body.unwrap_or_default() {
                bytes if bytes.is_empty() => RequestBody::Empty,
                bytes => RequestBody::Whole(bytes),
            },
            // It has the tokens of identities and uploads.
            needs_tls: false,
            hides_query: true,
        };
        let is_metadata = url
            .host_str()
            .is_some_and(|host| host.starts_with(LINK_LOCAL));
        let deletion = match &message.body {
            RequestBody::Whole(body) if is_deletion(&url) => Some(body.clone()),
            _ => None,
        };
        let sent = exchange(&self.0, url.clone(), message);
        let reply = if is_metadata {
            // On most machines nothing answers there.
            timeout(METADATA_TIMEOUT, sent)
                .await
                .map_err(|_| Error::fetch(url.as_str(), "nothing arrived in time", false))??
        } else {
            sent.await?
        };
        if !reply.status.is_success() {
            let mut url = url;
            url.set_query(None);
            let reason = write_failure::reason(reply.status, explain(&reply.body), false);
            return Err(Error::fetch(&redact(&url), reason, false));
        }
        if is_metadata && has_line(&url) && !is_word(&reply.body) {
            let reason = "the service of credentials sent something else than a name or a token";
            return Err(Error::fetch(url.as_str(), reason, false));
        }
        if deletion.is_some_and(|request| !names_requested_keys(&request, &reply.body)) {
            let reason = "the reply to a deletion names other objects";
            return Err(Error::fetch(&redact(&url), reason, false));
        }
        let body = match &reply.body {
            page if is_list(&url) => without_foreign_names(page).map(Into::into),
            _ => None,
        };
        let mut response = http::Response::new(body.unwrap_or(reply.body).into());
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        Ok(response)
    }
}

/// An error of floe on its way through object_store.
#[derive(Debug)]
struct Carried(Arc<Error>);

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Carried {}

fn into_http_error(error: Error) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, Carried(Arc::new(error)))
}

/// The cause of an error of object_store.
#[derive(Debug)]
pub(crate) struct Cause {
    /// The reason in the words of floe's client, if the error comes from there.
    pub(crate) reason: String,
    /// Whether another attempt may succeed.
    pub(crate) transient: bool,
    /// Whether no server has replied.
    pub(crate) is_without_reply: bool,
}

impl From<object_store::Error> for Cause {
    fn from(error: object_store::Error) -> Cause {
        let mut next: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(cause) = next {
            if let Some(Carried(error)) = cause.downcast_ref() {
                return Cause {
                    reason: match &**error {
                        Error::Fetch { reason, .. } => reason.clone(),
                        other => other.to_string(),
                    },
                    transient: error.is_transient(),
                    is_without_reply: matches!(&**error, Error::Fetch { status: None, .. }),
                };
            }
            next = cause.source();
        }
        Cause {
            reason: error.to_string(),
            transient: false,
            is_without_reply: false,
        }
    }
}

/// Whether object_store makes a URL or a header out of the reply to a request: that for the name of
/// a role, or for a token. It panics for other texts.
fn has_line(url: &Url) -> bool {
    let path = url.path();
    path.ends_with('/') || path.ends_with("/token")
}

/// Whether a request to this URL deletes many objects.
fn is_deletion(url: &Url) -> bool {
    url.query() == Some("delete")
}

/// Whether a request to this URL lists the objects of a bucket.
fn is_list(url: &Url) -> bool {
    url.query_pairs()
        .any(|(name, value)| name == "list-type" && value == "2")
}

/// Whether a text can be a part of a URL and of a header.
pub(super) fn is_word(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    text.len() <= WORD_LEN_MAX && text.iter().all(u8::is_ascii_graphic)
}

/// The longest text of a server that becomes a part of a URL, in bytes. S3 has texts of 1 KiB.
const WORD_LEN_MAX: usize = 8 * 1024;

/// The prefix of link-local addresses (RFC 3927), where cloud metadata services listen.
const LINK_LOCAL: &str = "169.254.";

const METADATA_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_no_url_can_have_are_refused() {
        assert!(is_word(b"arn-of_a.role\n"));
        assert!(!is_word(b"role\r\nX-Forged: 1"));
        assert!(!is_word(&[b'a'; WORD_LEN_MAX + 1]));
    }
}
