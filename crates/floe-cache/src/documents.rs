//! Documents beside those of a cache, such as the replies of an API.

use std::sync::Arc;
use std::time::Duration;

use floe_transfer::url::{parse_url, redact};
use floe_transfer::{Cancel, Error};
use reqwest::header::{ACCEPT, HeaderValue};
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
    /// The largest size in bytes.
    pub len_max: usize,
    /// The longest time until the document is there, with all attempts.
    pub deadline: Duration,
}

/// The results of requests for documents in their order; `None` for a document that the server does
/// not have. The outer error is that of all requests.
pub type Fetched = Result<Vec<Result<Option<Vec<u8>>, Error>>, Error>;

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

async fn fetch(client: &CacheClient, request: DocumentRequest) -> Result<Option<Vec<u8>>, Error> {
    let url = parse_url(&request.url)?;
    let shown = redact(&url);
    let mut message = Message::from(Method::GET);
    message.needs_tls = true;
    let accept = HeaderValue::from_static(request.accept);
    message.headers.insert(ACCEPT, accept);
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
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
        status if !status.is_success() => Err(status_error(&shown, status, &headers)),
        _ if body.len() > request.len_max => {
            let reason = format!("it has more than {} bytes", request.len_max);
            Err(Error::fetch(&shown, reason, false))
        }
        _ => Ok(Some(body)),
    }
}
