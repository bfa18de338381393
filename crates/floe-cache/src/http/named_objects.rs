//! Small objects of a cache behind HTTP or in a bucket.

use std::sync::Arc;
use std::time::SystemTime;

use floe_format::pin::{PIN_LEN_MAX, is_pin_name};
use floe_transfer::url::redact;
use floe_transfer::{Cancel, Error, Expected, NamedObject, NamedObjects, Written};
use reqwest::header::{
    CACHE_CONTROL, DATE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH,
    LAST_MODIFIED,
};
use reqwest::{Method, StatusCode};

use super::put::{object_headers, put_message};
use super::reply_guard::ReplyGuard;
use super::shared::HttpCacheShared;
use super::storage::HttpStorage;
use crate::request::{Message, RequestBody, exchange_up_to, status_error};
use crate::storage::{
    Folder, REQUESTS_MAX, ReadStorage as _, Replies, WriteStorage as _, list_names,
};

impl NamedObjects for HttpStorage {
    fn get(&self, names: &[String], cancel: &Cancel) -> Vec<Result<Option<NamedObject>, Error>> {
        let mut replies = Replies::new(cancel);
        let mut unsent = names.iter().enumerate();
        let mut results: Vec<_> = names.iter().map(|_| None).collect();
        loop {
            while replies.pending() < REQUESTS_MAX
                && let Some((number, name)) = unsent.next()
            {
                let (shared, name) = (self.shared.clone(), name.clone());
                let reply = ReplyGuard::new(replies.callback(move |result| (number, result)));
                self.shared
                    .spawn(async move { reply.send(shared.get_named(&name, PIN_LEN_MAX).await) });
            }
            match replies.next() {
                Ok(Some((number, result))) => results[number] = Some(result),
                Ok(None) => break,
                // The requests that are still in flight have no other result.
                Err(Error::Cancelled) => {
                    results.iter_mut().for_each(|result| {
                        result.get_or_insert(Err(Error::Cancelled));
                    });
                    break;
                }
                Err(_) => break,
            }
        }
        let results = results.into_iter();
        results
            .map(|result| result.unwrap_or(Err(Error::Internal("a request has no reply"))))
            .collect()
    }

    fn get_large(
        &self,
        name: &str,
        len_max: usize,
        cancel: &Cancel,
    ) -> Result<Option<NamedObject>, Error> {
        let (shared, name) = (self.shared.clone(), name.to_owned());
        let mut replies = Replies::new(cancel);
        let reply = ReplyGuard::new(replies.callback(|found| found));
        self.shared
            .spawn(async move { reply.send(shared.get_named(&name, len_max).await) });
        replies.only()?
    }

    fn put_volatile(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        let (shared, name, contents) = (self.shared.clone(), name.to_owned(), contents.to_vec());
        let put = async move { shared.put_named(&name, contents, &Expected::Any).await };
        self.wait(put).map(|_| ())
    }

    fn put(&self, name: &str, contents: &[u8], expected: &Expected) -> Result<Written, Error> {
        self.create()?;
        let (shared, name) = (self.shared.clone(), name.to_owned());
        let (contents, expected) = (contents.to_vec(), expected.clone());
        self.wait(async move { shared.put_named(&name, contents, &expected).await })
    }

    fn delete(&self, name: &str, expected: &Expected) -> Result<Written, Error> {
        let (shared, name, expected) = (self.shared.clone(), name.to_owned(), expected.clone());
        self.wait(async move { shared.delete_named(&name, &expected).await })
    }

    fn can_list(&self) -> bool {
        self.as_list().is_some()
    }

    fn list(&self, folder: &str, cancel: &Cancel) -> Result<Option<Vec<String>>, Error> {
        let Some(known) = Folder::of_small_objects(folder) else {
            return Ok(None);
        };
        if let Some(list) = self.as_list() {
            return list_names(list, known, cancel).map(Some);
        }
        if known != Folder::Pins {
            return Ok(None);
        }
        // floe serve replies with a name in each line.
        let (shared, folder) = (self.shared.clone(), folder.to_owned());
        let mut replies = Replies::new(cancel);
        let reply = ReplyGuard::new(replies.callback(|found| found));
        self.shared
            .spawn(async move { reply.send(shared.get_named(&folder, LIST_LEN_MAX).await) });
        let found = match replies.only()? {
            Ok(Some(found)) => found,
            Err(error) if !is_refusal(&error) => return Err(error),
            _ => return Ok(None),
        };
        let text = String::from_utf8(found.contents).unwrap_or_default();
        let names: Vec<String> = text.lines().map(str::to_owned).collect();
        // Another server sends a page.
        let are_names = names.iter().all(|name| is_pin_name(name));
        Ok(are_names.then_some(names))
    }
}

impl HttpStorage {
    /// Waits for a change, which a cancellation does not leave half-done.
    fn wait(
        &self,
        change: impl Future<Output = Result<Written, Error>> + Send + 'static,
    ) -> Result<Written, Error> {
        let mut replies = Replies::new(&Cancel::default());
        let reply = ReplyGuard::new(replies.callback(|written| written));
        self.shared.spawn(async move { reply.send(change.await) });
        replies.only()?
    }
}

/// Whether a server does not want the request, as one without a list of files.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Fetch {
            status: Some(403 | 405),
            ..
        }
    )
}

impl HttpCacheShared {
    async fn get_named(
        self: &Arc<Self>,
        name: &str,
        len_max: usize,
    ) -> Result<Option<NamedObject>, Error> {
        let mut message = Message::from(Method::GET);
        // A proxy must ask the server.
        let no_cache = HeaderValue::from_static("no-cache");
        message.headers.insert(CACHE_CONTROL, no_cache);
        let url = self.object_url(name)?;
        let reply = exchange_up_to(&self.client, url.clone(), message, len_max).await?;
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
            status if status.is_success() => Ok(Some(NamedObject {
                version: etag(&reply.headers),
                modified: time(&reply.headers, LAST_MODIFIED),
                replied_at: time(&reply.headers, DATE),
                contents: reply.body,
            })),
            status => Err(status_error(&redact(&url), status, &reply.headers)),
        }
    }

    async fn delete_named(
        self: &Arc<Self>,
        name: &str,
        expected: &Expected,
    ) -> Result<Written, Error> {
        let mut message = Message::from(Method::DELETE);
        add_condition(&mut message.headers, expected);
        let mut reply = self.write(name, message).await?;
        if reply.status == StatusCode::NOT_IMPLEMENTED {
            // The server knows no conditions.
            reply = self.write(name, Method::DELETE.into()).await?;
        }
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Written::Yes),
            status if status.is_success() => Ok(Written::Yes),
            StatusCode::PRECONDITION_FAILED => Ok(Written::Conflict),
            _ if self.is_conflict(&reply) => Ok(Written::Conflict),
            _ => Err(self.refusal(name, &reply)?),
        }
    }

    async fn put_named(
        self: &Arc<Self>,
        name: &str,
        contents: Vec<u8>,
        expected: &Expected,
    ) -> Result<Written, Error> {
        let mut headers = object_headers(name);
        add_condition(&mut headers, expected);
        let body = || RequestBody::Whole(contents.clone().into());
        let mut reply = self
            .write(name, put_message(headers.clone(), body()))
            .await?;
        if reply.status == StatusCode::NOT_IMPLEMENTED {
            // The server knows no conditions.
            headers.remove(IF_NONE_MATCH);
            headers.remove(IF_MATCH);
            reply = self.write(name, put_message(headers, body())).await?;
        }
        match reply.status {
            status if status.is_success() => Ok(Written::Yes),
            StatusCode::PRECONDITION_FAILED => Ok(Written::Conflict),
            // A bucket says so of a version that was deleted.
            StatusCode::NOT_FOUND if matches!(expected, Expected::Version(_)) => {
                Ok(Written::Conflict)
            }
            _ if self.is_conflict(&reply) => Ok(Written::Conflict),
            _ => Err(self.refusal(name, &reply)?),
        }
    }
}

fn add_condition(headers: &mut HeaderMap, expected: &Expected) {
    match expected {
        Expected::Any => {}
        Expected::Absent => {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        Expected::Version(version) => {
            let version = HeaderValue::from_str(version);
            headers.extend(version.ok().map(|version| (IF_MATCH, version)));
        }
    }
}

/// The longest list of pins in bytes that a server sends.
const LIST_LEN_MAX: usize = 4 * 1024 * 1024;

/// Returns the time in a header.
fn time(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// Returns the strong `ETag` of a reply. A weak one is no condition of a write.
fn etag(headers: &HeaderMap) -> Option<String> {
    let etag = headers.get(ETAG)?.to_str().ok()?;
    (!etag.starts_with("W/")).then(|| etag.to_owned())
}
