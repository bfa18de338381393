//! Objects on a server: one PUT for each, as Nix sends them, and what the server replies.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use floe_transfer::Error;
use reqwest::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap,
    HeaderValue, IF_NONE_MATCH,
};
use reqwest::{Method, StatusCode};
use tokio::sync::mpsc::Receiver;
use tokio::time::sleep;

use super::content_encoding::ContentEncodings;
use super::shared::HttpCacheShared;
use super::upload::{PutObject, Upload};
use super::write_failure;
use crate::binary_cache::CACHE_INFO;
use crate::request::{Message, Part, Reply, RequestBody, StreamedBody, exchange};
use crate::storage::LenResult;

/// Writes objects by PUT. A large one has no length, because it is still being compressed.
#[derive(Debug)]
pub(crate) struct PlainPut {
    shared: Arc<HttpCacheShared>,
    /// Headers of all objects.
    headers: HeaderMap,
    encodings: ContentEncodings,
}

impl PlainPut {
    pub(crate) fn new(
        shared: Arc<HttpCacheShared>,
        headers: HeaderMap,
        encodings: ContentEncodings,
    ) -> PlainPut {
        PlainPut {
            shared,
            headers,
            encodings,
        }
    }

    fn upload(&self, name: String, encoding: Option<HeaderValue>, body: RequestBody) -> Upload {
        let shared = self.shared.clone();
        let mut headers = object_headers(&name);
        if name == CACHE_INFO {
            // The file of another writer stays.
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        headers.extend(self.headers.clone());
        headers.extend(encoding.map(|encoding| (CONTENT_ENCODING, encoding)));
        Box::pin(async move { shared.put(&name, headers, body).await })
    }
}

impl PutObject for PlainPut {
    fn put(&self, name: String, contents: Vec<u8>) -> Upload {
        let (contents, encoding) = self.encodings.encode(&name, contents);
        self.upload(name, encoding, RequestBody::Whole(contents.into()))
    }

    fn put_parts(&self, name: String, parts: Receiver<Part>) -> Upload {
        let body = StreamedBody::new(parts);
        let (is_complete, url) = (body.is_complete(), self.shared.object_url(&name));
        let upload = self.upload(name, None, RequestBody::Stream(body));
        Box::pin(async move {
            upload.await?;
            if is_complete.load(Ordering::Relaxed) {
                Ok(())
            } else {
                Err(write_failure::too_early(&url?))
            }
        })
    }
}

impl HttpCacheShared {
    pub(crate) async fn query_len(&self, name: &str) -> LenResult {
        let _permit = self.query_permit().await;
        let mut message = Message::from(Method::HEAD);
        // The length of an encoded object would be another one.
        let identity = HeaderValue::from_static("identity");
        message.headers.insert(ACCEPT_ENCODING, identity);
        let reply = self.write(name, message).await?;
        match reply.status {
            status if status.is_success() => {
                let len = reply.headers.get(CONTENT_LENGTH);
                let len = len.and_then(|len| len.to_str().ok()?.parse().ok());
                let reason = "the server names no length of the object";
                let url = self.object_url(name)?;
                Ok(Some(len.ok_or_else(|| {
                    Error::fetch(&floe_transfer::url::redact(&url), reason, false)
                })?))
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            _ => Err(self.refusal(name, &reply)?),
        }
    }

    /// Writes an object whole or not at all.
    async fn put(&self, name: &str, headers: HeaderMap, body: RequestBody) -> Result<(), Error> {
        self.check_writable()?;
        let is_repeatable = body.is_repeatable();
        let replied = match body {
            RequestBody::Whole(bytes) if headers.contains_key(IF_NONE_MATCH) => {
                self.put_if_absent(name, headers, bytes).await
            }
            body => self.write(name, put_message(headers, body)).await,
        };
        match replied {
            Ok(reply) if reply.status.is_success() => {
                self.failed_writes.store(0, Ordering::Relaxed);
                Ok(())
            }
            Ok(reply) if reply.status == StatusCode::PRECONDITION_FAILED && name == CACHE_INFO => {
                Ok(())
            }
            Ok(reply) if REFUSES_ALL.contains(&reply.status) => {
                Err(self.record_failed_write(self.refusal(name, &reply)?))
            }
            Ok(reply) => Err(self.refusal(name, &reply)?),
            Err(error @ Error::Cancelled) => Err(error),
            // The writer of a streamed object may have ended it.
            Err(error) if is_repeatable => Err(self.record_failed_write(error)),
            Err(error) => Err(error),
        }
    }

    /// Writes an object unless another writer has written it.
    async fn put_if_absent(
        &self,
        name: &str,
        mut headers: HeaderMap,
        bytes: Bytes,
    ) -> Result<Reply, Error> {
        let policy = &self.client.options.retry;
        let body = || RequestBody::Whole(bytes.clone());
        let mut attempt = 1;
        loop {
            let reply = self
                .write(name, put_message(headers.clone(), body()))
                .await?;
            if reply.status == StatusCode::NOT_IMPLEMENTED {
                // The server knows no conditions.
                headers.remove(IF_NONE_MATCH);
                return self.write(name, put_message(headers, body())).await;
            }
            if !self.is_conflict(&reply) || attempt >= policy.attempts {
                return Ok(reply);
            }
            // Another writer was at the same object, and this request changed nothing.
            let conflict = Error::fetch(name, CONDITIONAL_CONFLICT, true);
            let pause = sleep(policy.pause(attempt, &conflict));
            self.client.network.cancellation.or_end(pause).await?;
            attempt += 1;
        }
    }

    /// Whether S3 demands that the same request is sent again.
    pub(super) fn is_conflict(&self, reply: &Reply) -> bool {
        let explanation = || self.client.explain(&reply.body);
        reply.status == StatusCode::CONFLICT
            && explanation().is_some_and(|it| it.message.starts_with(CONDITIONAL_CONFLICT))
    }

    /// Returns the error after which nothing is written any more, if there is one.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        match &*self.writes_disabled_by.lock() {
            Some(error) => Err(Error::SourceDisabled(error.clone())),
            None => Ok(()),
        }
    }

    /// Lets writes try again, at the beginning of another copy.
    pub(super) fn enable_writes(&self) {
        self.failed_writes.store(0, Ordering::Relaxed);
        *self.writes_disabled_by.lock() = None;
    }

    /// Deletes objects, one after another.
    pub(super) async fn delete_each(&self, names: Vec<String>) -> Result<(), Error> {
        for name in names {
            self.delete(&name).await?;
        }
        Ok(())
    }

    async fn delete(&self, name: &str) -> Result<(), Error> {
        let reply = self.write(name, Method::DELETE.into()).await?;
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.refusal(name, &reply)?),
        }
    }

    /// Counts failures, and lets all further writes fail after [`FAILURES_MAX`] in a row.
    fn record_failed_write(&self, error: Error) -> Error {
        if self.failed_writes.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return error;
        }
        let error = Arc::new(error);
        *self.writes_disabled_by.lock() = Some(error.clone());
        Error::SourceDisabled(error)
    }

    pub(super) async fn write(&self, name: &str, message: Message) -> Result<Reply, Error> {
        let reply = exchange(&self.client, self.object_url(name)?, message).await;
        reply.map_err(write_failure::of_request)
    }

    pub(super) fn refusal(&self, name: &str, reply: &Reply) -> Result<Error, Error> {
        let explanation = self.client.explain(&reply.body);
        let has_directories = self.client.dialect.is_none();
        Ok(write_failure::of_reply(
            &self.object_url(name)?,
            reply,
            (explanation, has_directories),
        ))
    }
}

pub(super) fn put_message(headers: HeaderMap, body: RequestBody) -> Message {
    Message {
        method: Method::PUT,
        headers,
        body,
        ..Message::default()
    }
}

/// Returns the type of an object, which is that of Nix, and how long caches may keep it.
pub(crate) fn object_headers(name: &str) -> HeaderMap {
    let (content_type, lifetime) = match name {
        "nix-cache-info" => ("text/x-nix-cache-info", SHORT_LIFETIME),
        _ if name.ends_with(".narinfo") => ("text/x-nix-narinfo", SHORT_LIFETIME),
        _ if name.ends_with(".ls") || name.ends_with(".doi") => {
            ("application/json", SHORT_LIFETIME)
        }
        _ if name.starts_with("debuginfo/") => ("application/json", SHORT_LIFETIME),
        // A pin moves at any time.
        _ if name.starts_with("pins/") => ("text/plain; charset=utf-8", "no-cache"),
        _ if name.starts_with("log/") => ("text/plain; charset=utf-8", SHORT_LIFETIME),
        // Another NAR has another name.
        _ => (
            "application/x-nix-nar",
            "public, max-age=31536000, immutable",
        ),
    };
    HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (CACHE_CONTROL, HeaderValue::from_static(lifetime)),
    ])
}

/// Narinfos can change: a path gets another signature, or another NAR.
const SHORT_LIFETIME: &str = "public, max-age=300";

/// The code of S3 for two conditional writes at once.
const CONDITIONAL_CONFLICT: &str = "ConditionalRequestConflict";

/// The statuses after which a server would refuse every other object too.
const REFUSES_ALL: [StatusCode; 3] = [
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::INSUFFICIENT_STORAGE,
];

/// How many writes in a row must fail, each after all its attempts, before no other one is tried.
const FAILURES_MAX: u32 = 3;
