//! An object on its way to a server: in one request if it fits into memory, otherwise in parts that
//! are sent while later ones are made.
//!
//! All uploads share a budget of memory. An upload takes its share before its first byte and keeps
//! it to its end. Its next part waits only for its own earlier parts. So no upload waits for
//! another one while it holds memory, a decoder or a connection.

use std::fmt::Debug;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use floe_transfer::{CANCEL_POLL, Error};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::reply_guard::ReplyGuard;
use super::shared::HttpCacheShared;
use crate::network::upload_limits::{PART_LEN, PARTS_MAX, SHARE_LEN};
use crate::request::Part;
use crate::storage::{NewObject, ObjectPlan, WriteCallback};

/// The way in which a kind of server takes objects.
pub(crate) trait PutObject: Debug + Send + Sync {
    /// Writes an object from memory.
    fn put(&self, name: String, contents: Vec<u8>) -> Upload;

    /// Writes an object that is still being made. It must not appear without [`Part::End`].
    fn put_parts(&self, name: String, parts: Receiver<Part>) -> Upload;

    /// Returns the length of the parts of an object that may have `len` bytes, at most
    /// [`PART_LEN`].
    fn part_len(&self, _len: u64) -> usize {
        PART_LEN
    }
}

/// The way in which a kind of server deletes many objects by one request.
pub(crate) trait DeleteObjects: Debug + Send + Sync {
    /// Deletes objects, and returns those that the server did not delete.
    fn delete(&self, names: Vec<String>) -> Deletion;

    /// Returns the number of objects of one request.
    fn batch_len(&self) -> usize;
}

/// A running deletion.
pub(crate) type Deletion = Pin<Box<dyn Future<Output = Vec<String>> + Send>>;

/// A running upload.
pub(crate) type Upload = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// An object that is being made.
pub(super) struct UploadedObject {
    shared: Arc<HttpCacheShared>,
    server: Arc<dyn PutObject>,
    part_len: usize,
    buffer: Vec<u8>,
    /// The share of the budget, which the buffer and all parts on their way use.
    share: Option<OwnedSemaphorePermit>,
    early_name: String,
    /// The URL, for errors.
    place: PathBuf,
    /// The upload, once the object has become too large for memory.
    parts: Option<RunningUpload>,
}

struct RunningUpload {
    parts: Sender<Part>,
    /// A permit for each part that may be on its way.
    slots: Arc<Semaphore>,
    result: oneshot::Receiver<Result<(), Error>>,
}

impl UploadedObject {
    /// Begins an object. Blocks until there is memory for it.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(super) fn begin(
        shared: &Arc<HttpCacheShared>,
        server: Arc<dyn PutObject>,
        plan: &ObjectPlan,
    ) -> Result<UploadedObject, Error> {
        shared.check_writable()?;
        let url = shared.object_url(&plan.early_name)?;
        let kib = plan.len.min(SHARE_LEN as u64).div_ceil(1024);
        let budget = shared.client.network.upload_memory.clone();
        // At most `SHARE_LEN`.
        let permits = budget.acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX));
        let share = wait_for(shared, permits)?.ok();
        Ok(UploadedObject {
            shared: shared.clone(),
            part_len: server.part_len(plan.len),
            server,
            buffer: Vec::new(),
            share,
            early_name: plan.early_name.clone(),
            place: floe_transfer::url::redact(&url).into(),
            parts: None,
        })
    }

    /// Gives the buffer to the network as a part, as soon as that may be on its way.
    fn send_part(&mut self) -> Result<(), Error> {
        let mut upload = match self.parts.take() {
            Some(upload) => upload,
            None => self.start(),
        };
        let slot = upload.slots.clone().acquire_owned();
        // A server may reply early and keep the parts.
        let slot_or_end = async {
            tokio::select! {
                slot = slot => Ok(slot),
                end = &mut upload.result => Err(end),
            }
        };
        let slot = match wait_for(&self.shared, slot_or_end)? {
            Ok(Ok(slot)) => slot,
            Err(Ok(Err(error))) => return Err(error),
            Ok(Err(_)) | Err(_) => return Err(self.ended_early()),
        };
        let part = Bytes::from(std::mem::take(&mut self.buffer));
        self.parts = Some(self.send(upload, Part::Bytes(part, slot))?);
        Ok(())
    }

    fn start(&self) -> RunningUpload {
        let (parts, received) = channel(PARTS_MAX + 1);
        let (sender, result) = oneshot::channel();
        let upload = self.server.put_parts(self.early_name.clone(), received);
        self.shared.spawn(async move {
            // The writer is gone only if it needs no result.
            let _: Result<(), _> = sender.send(upload.await);
        });
        RunningUpload {
            parts,
            slots: Arc::new(Semaphore::new(PARTS_MAX)),
            result,
        }
    }

    /// Sends a part. If the upload has ended before, returns its error.
    fn send(&self, upload: RunningUpload, part: Part) -> Result<RunningUpload, Error> {
        // There is room for all parts with a slot and for the end.
        if upload.parts.try_send(part).is_ok() {
            return Ok(upload);
        }
        match wait_for(&self.shared, upload.result)? {
            Ok(Err(error)) => Err(error),
            _ => Err(self.ended_early()),
        }
    }

    fn ended_early(&self) -> Error {
        let url = self.place.display().to_string();
        Error::fetch(
            &url,
            "the server ended the upload before its last part",
            true,
        )
    }

    /// Sends the rest and the end. Returns the upload.
    fn end(&mut self) -> Result<Option<RunningUpload>, Error> {
        if self.parts.is_none() {
            return Ok(None);
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        let upload = self.parts.take();
        upload
            .map(|upload| self.send(upload, Part::End))
            .transpose()
    }
}

/// Waits on this thread, which is a worker, until a network thread has something.
///
/// Errors: [`Error::Cancelled`].
fn wait_for<T>(shared: &HttpCacheShared, event: impl Future<Output = T>) -> Result<T, Error> {
    let network = &shared.client.network;
    let mut event = std::pin::pin!(event);
    loop {
        let waited = async { timeout(CANCEL_POLL, event.as_mut()).await };
        match network.handle.block_on(waited) {
            Ok(result) => return Ok(result),
            Err(_) if network.cancel.is_raised() => return Err(Error::Cancelled),
            Err(_) => {}
        }
    }
}

impl Write for UploadedObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() >= self.part_len {
            self.send_part().map_err(io::Error::other)?;
        }
        let len = bytes.len().min(self.part_len - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewObject for UploadedObject {
    fn place(&self) -> &Path {
        &self.place
    }

    fn finish(mut self: Box<Self>, name: &str, reply: WriteCallback) -> String {
        let reply = ReplyGuard::new(reply);
        match self.end() {
            Err(error) => reply.send(Err(error)),
            Ok(Some(upload)) => {
                let share = self.share.take();
                self.shared.spawn(async move {
                    if let Ok(result) = upload.result.await {
                        reply.send(result);
                    }
                    drop(share);
                });
            }
            Ok(None) => {
                let (share, name) = (self.share.take(), name.to_owned());
                let upload = self
                    .server
                    .put(name.clone(), std::mem::take(&mut self.buffer));
                self.shared.spawn(async move {
                    let result = upload.await;
                    drop(share);
                    reply.send(result);
                });
                return name;
            }
        }
        std::mem::take(&mut self.early_name)
    }
}
