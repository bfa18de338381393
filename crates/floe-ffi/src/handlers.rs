//! The handlers of requests, which run on workers.

mod copy;
mod descriptor;
mod info;
mod nar;
mod network;
mod serve;
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_copy::{StoreConfig, UriContext, resolve_store_uri};
use floe_format::StoreDir;
use floe_messages::{Codec, DecodeError, EchoReply, EchoRequest, ErrorKind, Message, Method};
use floe_transfer::{Cancel, Error, ErrorKind as Kind};

use crate::completion::{Failure, JobOutcome, encode};
use crate::engine::{Job, Shared};

/// Handles a request.
pub(crate) fn run(mut job: Job, engine: &Shared) -> JobOutcome {
    let sink = job
        .request
        .extra
        .as_mut()
        .and_then(|extra| extra.sink.take());
    let work = HandlerContext {
        codec: job.request.codec,
        payload: job.request.payload.bytes(),
        job: &job,
        engine,
    };
    let done = match job.request.method {
        Method::Echo => work.echo(),
        Method::PathInfo => work.path_info(),
        Method::Closure => work.closure(),
        Method::Resolve => work.resolve(),
        Method::Install | Method::Copy => work.copy_paths(),
        Method::Verify => work.verify(),
        Method::Nar => work.nar(sink),
        Method::Serve => work.serve(),
        Method::Stop => work.stop(),
        // The engine thread answers these requests.
        Method::Ping | Method::Bytes => Ok(Vec::new()),
    };
    match done {
        Ok(reply) => JobOutcome::Done(reply),
        Err(WorkError::Cancelled) => JobOutcome::Cancelled,
        Err(WorkError::Failed(failure)) => JobOutcome::Failed(failure),
    }
}

/// The context of a request that is being handled.
struct HandlerContext<'a> {
    codec: Codec,
    payload: &'a [u8],
    job: &'a Job,
    engine: &'a Shared,
}

/// The encoded reply, or the reason why there is none.
type HandlerResult = Result<Vec<u8>, WorkError>;

/// The reason why a request has no reply.
enum WorkError {
    Cancelled,
    Failed(Failure),
}

impl<'a> HandlerContext<'a> {
    fn request<M: Message<'a>>(&self) -> Result<M, WorkError> {
        Ok(self.codec.decode(self.payload)?)
    }

    fn reply<'m>(&self, message: &impl Message<'m>) -> HandlerResult {
        Ok(encode(self.codec, message))
    }

    fn cancel(&self) -> &Cancel {
        &self.job.cancel
    }

    fn echo(&self) -> HandlerResult {
        let request: EchoRequest<'_> = self.request()?;
        let end = Instant::now().checked_add(Duration::from_millis(request.delay_ms));
        loop {
            if self.cancel().is_raised() {
                return Err(WorkError::Cancelled);
            }
            let left = end.map_or(POLL_INTERVAL, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                let message = request.message;
                return self.reply(&EchoReply { message });
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

/// Parses the store directory of a request.
fn store_dir(text: Option<&str>) -> Result<Option<StoreDir>, WorkError> {
    text.map(StoreDir::new).transpose().map_err(|error| {
        usage(format!(
            "invalid store directory {:?}: {error}",
            text.unwrap_or("")
        ))
    })
}

/// Returns the store that a URI names. `auto` ignores the home directory, because libraries do not
/// read the environment.
fn resolve_store(
    text: &str,
    store_dir: Option<&StoreDir>,
) -> Result<Arc<dyn StoreConfig>, WorkError> {
    let data_home = None;
    let context = UriContext {
        store_dir,
        data_home,
    };
    Ok(resolve_store_uri(text, &context)?)
}

/// Returns the directories of the local store that a URI names.
fn local_store(text: &str, dir: Option<&StoreDir>) -> Result<floe_store::StoreLayout, WorkError> {
    let store = resolve_store(text, dir)?;
    let layout = store.layout().cloned();
    layout.ok_or_else(|| {
        usage(format!(
            "cannot use {text:?}: it is a binary cache; use the path of a local store"
        ))
    })
}

fn usage(message: String) -> WorkError {
    WorkError::Failed(Failure::new(ErrorKind::Usage, message))
}

impl From<DecodeError> for WorkError {
    fn from(error: DecodeError) -> WorkError {
        usage(format!("invalid request: {error}"))
    }
}

impl From<floe_store::StoreError> for WorkError {
    fn from(error: floe_store::StoreError) -> WorkError {
        Error::from(error).into()
    }
}

impl From<Error> for WorkError {
    fn from(error: Error) -> WorkError {
        match error.kind() {
            Kind::Interrupted => WorkError::Cancelled,
            kind => WorkError::Failed(Failure::new(translate(kind), error.to_string())),
        }
    }
}

fn translate(kind: Kind) -> ErrorKind {
    match kind {
        Kind::Usage => ErrorKind::Usage,
        Kind::Untrusted => ErrorKind::Untrusted,
        Kind::Network => ErrorKind::Network,
        Kind::NoSpace => ErrorKind::NoSpace,
        Kind::Failed | Kind::Interrupted => ErrorKind::Failed,
    }
}

/// How often a delayed echo checks whether it is cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
