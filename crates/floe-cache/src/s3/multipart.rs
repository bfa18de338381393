//! Writes large objects in parts. A broken upload leaves no object, and its parts are deleted.

use std::fmt::Debug;
use std::sync::Arc;

use floe_transfer::Error;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{Attribute, Attributes, MultipartId, PutMultipartOptions};
use reqwest::header::{CACHE_CONTROL, CONTENT_TYPE};
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};

use super::connector::{Cause, is_word};
use crate::error::CacheError;
use crate::http::{HttpCacheShared, PlainPut, PutObject, Upload, object_headers};
use crate::network::upload_limits::PART_LEN;
use crate::request::Part;

/// Writes the objects of a cache in a bucket.
#[derive(Debug)]
pub(crate) struct BucketPut<S> {
    pub(crate) small: PlainPut,
    pub(crate) shared: Arc<HttpCacheShared>,
    pub(crate) store: Arc<S>,
    /// Empty, or with a slash at its end.
    pub(crate) prefix: String,
    /// The URL of the cache, for messages.
    pub(crate) url: String,
    pub(crate) storage_class: Option<String>,
    pub(crate) chunk_len: Option<u64>,
}

impl<S: MultipartStore + Debug> PutObject for BucketPut<S> {
    fn put(&self, name: String, contents: Vec<u8>) -> Upload {
        self.small.put(name, contents)
    }

    fn part_len(&self, len: u64) -> usize {
        let least = len.div_ceil(PARTS_MAX).max(PART_LEN_MIN);
        let wanted = self.chunk_len.unwrap_or(PART_LEN as u64).max(least);
        usize::try_from(wanted).map_or(PART_LEN, |len| len.min(PART_LEN))
    }

    fn put_parts(&self, name: String, parts: Receiver<Part>) -> Upload {
        let headers = object_headers(&name);
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let mut attributes = Attributes::new();
        for (attribute, value) in [
            (Attribute::ContentType, text(CONTENT_TYPE)),
            (Attribute::CacheControl, text(CACHE_CONTROL)),
            (Attribute::StorageClass, self.storage_class.as_deref()),
        ] {
            if let Some(value) = value {
                attributes.insert(attribute, value.to_owned().into());
            }
        }
        let options = PutMultipartOptions {
            attributes,
            ..PutMultipartOptions::default()
        };
        let upload = MultipartUpload {
            store: self.store.clone(),
            shared: self.shared.clone(),
            key: format!("{}{name}", self.prefix),
            url: format!("{}/{name}", self.url),
            name,
        };
        Box::pin(upload.run(options, parts))
    }
}

/// The smallest part that S3 takes, but for the last one.
const PART_LEN_MIN: u64 = 5 * 1024 * 1024;

/// The largest number of parts.
const PARTS_MAX: u64 = 10_000;

struct MultipartUpload<S> {
    store: Arc<S>,
    shared: Arc<HttpCacheShared>,
    /// The name in the bucket.
    key: String,
    /// The name in the cache.
    name: String,
    url: String,
}

impl<S: MultipartStore> MultipartUpload<S> {
    /// Writes the parts, and makes the object out of them.
    async fn run(self, options: PutMultipartOptions, parts: Receiver<Part>) -> Result<(), Error> {
        let MultipartUpload { store, key, .. } = &self;
        // Unlike `Path::from`, this keeps the key as it is.
        let path = Path::parse(key).map_err(|error| self.failure(error.into()))?;
        let _open = self.shared.open_uploads().begin();
        let begun = store.create_multipart_opts(&path, options).await;
        let id = begun.map_err(|error| self.failure(error))?;
        if !is_word(id.as_bytes()) {
            // object_store would panic.
            return Err(CacheError::Write {
                url: self.url.clone(),
                reason: "the server names the upload by a text that no URL can have".into(),
                transient: false,
            }
            .into());
        }
        let result = match self.write_parts((&path, &id), parts).await {
            Ok((ids, len)) => self.complete((&path, &id), ids, len).await,
            Err(error) => Err(error),
        };
        if result.is_err() {
            // The rules of the bucket delete what this leaves.
            let _: Result<(), _> = store.abort_multipart(&path, &id).await;
        }
        result
    }

    /// Writes the parts. Returns their names, in their order, and their length.
    async fn write_parts(
        &self,
        (path, id): (&Path, &MultipartId),
        mut parts: Receiver<Part>,
    ) -> Result<(Vec<PartId>, u64), Error> {
        let (mut running, mut done) = (JoinSet::new(), Vec::new());
        let (mut count, mut len) = (0, 0);
        let mut keep = |ended: Result<(usize, object_store::Result<PartId>), JoinError>| {
            let (index, part) =
                ended.map_err(|_| Error::Internal("a task of an upload panicked"))?;
            done.push((index, part.map_err(|error| self.failure(error))?));
            Ok::<(), Error>(())
        };
        loop {
            tokio::select! {
                part = parts.recv() => match part {
                    Some(Part::Bytes(bytes, permit)) => {
                        let (store, path, id) = (self.store.clone(), path.clone(), id.clone());
                        let index = count;
                        count += 1;
                        len += bytes.len() as u64;
                        running.spawn(async move {
                            let part = store.put_part(&path, &id, index, bytes.into()).await;
                            drop(permit);
                            (index, part)
                        });
                    }
                    Some(Part::End) => break,
                    // The writer has dropped the object.
                    None => return Err(Error::NotNeeded),
                },
                Some(ended) = running.join_next() => keep(ended)?,
            }
        }
        while let Some(ended) = running.join_next().await {
            keep(ended)?;
        }
        done.sort_by_key(|(index, _)| *index);
        Ok((done.into_iter().map(|(_, id)| id).collect(), len))
    }

    async fn complete(
        &self,
        (path, id): (&Path, &MultipartId),
        ids: Vec<PartId>,
        len: u64,
    ) -> Result<(), Error> {
        let Err(error) = self.store.complete_multipart(path, id, ids).await else {
            return Ok(());
        };
        // The reply to an earlier attempt may have been lost.
        match self.shared.query_len(&self.name).await {
            Ok(Some(found)) if found == len => Ok(()),
            _ => Err(self.failure(error)),
        }
    }

    fn failure(&self, error: object_store::Error) -> Error {
        let Cause {
            reason, transient, ..
        } = error.into();
        CacheError::Write {
            url: self.url.clone(),
            reason,
            transient,
        }
        .into()
    }
}
