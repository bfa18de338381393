//! Deletes many objects of a bucket by one request (`DeleteObjects` of S3).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{StreamExt as _, stream};
use object_store::ObjectStore;
use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

use crate::http::{DeleteObjects, Deletion};

/// Deletes the objects of a cache in a bucket.
#[derive(Debug)]
pub(crate) struct BucketDeletion<S> {
    store: Arc<S>,
    /// Empty, or with a slash at its end.
    prefix: String,
    /// Whether the server has refused such a request. Not all services that speak S3 know it.
    is_refused: Arc<AtomicBool>,
}

impl<S> BucketDeletion<S> {
    pub(crate) fn new(store: Arc<S>, prefix: String) -> BucketDeletion<S> {
        BucketDeletion {
            store,
            prefix,
            is_refused: Arc::default(),
        }
    }
}

impl<S: ObjectStore> DeleteObjects for BucketDeletion<S> {
    fn delete(&self, names: Vec<String>) -> Deletion {
        let keys = names.iter().map(|name| format!("{}{name}", self.prefix));
        // Unlike `Path::from`, this keeps the key as it is.
        let paths: Result<Vec<Path>, _> = keys.map(Path::parse).collect();
        let (store, is_refused) = (self.store.clone(), self.is_refused.clone());
        Box::pin(async move {
            let Ok(paths) = paths else { return names };
            if is_refused.load(Ordering::Relaxed) {
                return names;
            }
            let paths = paths.into_iter().map(Ok);
            let deletion = store.delete_stream(stream::iter(paths).boxed());
            let results: Vec<_> = deletion.collect().await;
            if results.len() != names.len() {
                is_refused.store(true, Ordering::Relaxed);
                return names;
            }
            // A request for each of the others finds out why.
            let failed = names.into_iter().zip(results);
            let failed = failed.filter(|(_, result)| result.is_err());
            failed.map(|(name, _)| name).collect()
        })
    }

    /// S3 takes 1,000. A slow server must delete all of them before the reply is overdue.
    fn batch_len(&self) -> usize {
        let is_refused = self.is_refused.load(Ordering::Relaxed);
        if is_refused { 1 } else { 250 }
    }
}

/// Whether the errors in the reply to a deletion name only objects that the request names.
/// object_store would panic.
pub(super) fn names_requested_keys(request: &[u8], reply: &[u8]) -> bool {
    let (Some(requested), Some(named)) = (keys(request), keys(reply)) else {
        return false;
    };
    named.is_subset(&requested)
}

/// Returns the keys in the request or in the reply.
fn keys(document: &[u8]) -> Option<HashSet<String>> {
    let mut reader = Reader::from_str(str::from_utf8(document).ok()?);
    let mut keys = HashSet::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) if tag.local_name().as_ref() == b"Key" => {
                let text = reader.read_text(tag.name()).ok()?;
                keys.insert(unescape(&text.decode().ok()?).ok()?.into_owned());
            }
            Event::Eof => return Some(keys),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_about_other_objects_are_refused() {
        let request = b"<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object>\
            <Key>a&amp;b</Key></Object><Object><Key>c</Key></Object></Delete>";
        for (reply, expected) in [
            (
                "<DeleteResult><Deleted><Key>c</Key></Deleted></DeleteResult>",
                true,
            ),
            (
                "<DeleteResult><Error><Key>a&amp;b</Key><Code>AccessDenied</Code></Error>\
                 <Deleted><Key>c</Key></Deleted></DeleteResult>",
                true,
            ),
            ("<DeleteResult/>", true),
            (
                "<DeleteResult><Error><Key>other</Key><Code>x</Code></Error></DeleteResult>",
                false,
            ),
            ("<DeleteResult><Error><Key>", false),
        ] {
            let found = names_requested_keys(request, reply.as_bytes());
            assert_eq!(found, expected, "{reply}");
        }
    }
}
