//! Documents beside those of a cache, such as the replies of an API.

use std::sync::Arc;
use std::time::Duration;

use floe_transfer::url::{parse_url, redact};
use floe_transfer::{Cancel, Error};
use reqwest::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, StatusCode};
use tokio::time::timeout;

use crate::network::Network;
use crate::request::{CacheClient, Message, Reply, RequestOptions, exchange_up_to, status_error};
use crate::storage::Replies;

/// A request for a document that has no signature. No redirect leads it from `https` to `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRequest {
    /// The URL, with `http` or `https`.
    pub url: String,
    /// The media type that the server shall send.
    pub accept: &'static str,
    /// The `ETag` of the document that the caller has: the server need not send it again.
    pub known_etag: Option<String>,
    /// The largest size in bytes.
    pub len_max: usize,
    /// The longest time until the document is there, with all attempts.
    pub deadline: Duration,
}

/// The reply to a request for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// The server does not have the document.
    Absent,
    /// The document has the `ETag` that the caller knows.
    Unchanged,
    /// The document.
    Found {
        /// Its bytes.
        body: Vec<u8>,
        /// Its `ETag`, if the server tells it.
        etag: Option<String>,
    },
}

impl Document {
    /// Returns the bytes of a document, if the server has sent it.
    pub fn into_body(self) -> Option<Vec<u8>> {
        match self {
            Document::Found { body, .. } => Some(body),
            Document::Absent | Document::Unchanged => None,
        }
    }
}

/// The results of requests for documents in their order. The outer error is that of all requests.
pub type Fetched = Result<Vec<Result<Document, Error>>, Error>;

/// Fetches documents, all at once.
///
/// Errors: [`Error::Fetch`] of a server, [`Error::InvalidStoreUri`] for an invalid URL, and for all
/// requests [`Error::Cancelled`].
pub fn fetch_documents(
    network: &Network,
    requests: Vec<DocumentRequest>,
    cancel: &Cancel,
) -> Fetched {
    let client = CacheClient::new(network, &RequestOptions::default(), None)?;
    let client = Arc::new(client);
    let mut replies = Replies::new(cancel);
    let mut results = Vec::new();
    for (number, request) in requests.into_iter().enumerate() {
        let reply = replies.callback(move |result| (number, result));
        let client = client.clone();
        results.push(None);
        let fetch = async move { reply(fetch(&client, request).await) };
        network.shared.handle.spawn(fetch);
    }
    while let Some((number, result)) = replies.next()? {
        results[number] = Some(result);
    }
    Ok(results.into_iter().flatten().collect())
}

async fn fetch(client: &CacheClient, request: DocumentRequest) -> Result<Document, Error> {
    let url = parse_url(&request.url)?;
    let shown = redact(&url);
    let mut message = Message::from(Method::GET);
    message.needs_tls = true;
    let accept = HeaderValue::from_static(request.accept);
    message.headers.insert(ACCEPT, accept);
    let known = request.known_etag.as_deref().map(HeaderValue::from_str);
    let known = known.and_then(Result::ok);
    let is_conditional = known.is_some();
    message
        .headers
        .extend(known.map(|etag| (IF_NONE_MATCH, etag)));
    let exchange = exchange_up_to(client, url, message, request.len_max);
    let Ok(reply) = timeout(request.deadline, exchange).await else {
        let seconds = request.deadline.as_secs_f64();
        let reason = format!("no document arrived within {seconds} seconds");
        return Err(Error::fetch(&shown, reason, true));
    };
    let Reply {
        status,
        headers,
        body,
    } = reply?;
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Document::Absent),
        StatusCode::NOT_MODIFIED if is_conditional => Ok(Document::Unchanged),
        status if !status.is_success() => Err(status_error(&shown, status, &headers)),
        _ if body.len() > request.len_max => {
            let reason = format!("it has more than {} bytes", request.len_max);
            Err(Error::fetch(&shown, reason, false))
        }
        _ => {
            let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok());
            let etag = etag.map(str::to_owned);
            Ok(Document::Found { body, etag })
        }
    }
}
