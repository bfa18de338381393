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

use floe_copy::resolve_store_uri;
use floe_format::StoreDir;
use floe_messages::{DecodeError, EchoReply, EchoRequest, ErrorKind, Message, Method};
use floe_store::{StoreError, StoreLayout};
use floe_transfer::{Cancel, Error, ErrorKind as Kind, StoreConfig, UriContext};

use crate::completion::{Failure, JobError, JobOutcome, encode};
use crate::engine::{Job, Shared};

/// Handles a request.
pub(crate) fn run(mut job: Job, engine: &Shared) -> JobOutcome {
    let sink = job.request.extra.take().and_then(|extra| extra.sink);
    let work = HandlerContext { job: &job, engine };
    match job.request.method {
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
    }
}

/// The context of a request that is being handled.
struct HandlerContext<'a> {
    job: &'a Job,
    engine: &'a Shared,
}

impl<'a> HandlerContext<'a> {
    fn request<M: Message<'a>>(&self) -> Result<M, JobError> {
        let request = &self.job.request;
        Ok(request.codec.decode(request.payload.bytes())?)
    }

    fn reply<'m>(&self, message: &impl Message<'m>) -> JobOutcome {
        Ok(encode(self.job.request.codec, message))
    }

    fn cancel(&self) -> &Cancel {
        &self.job.state.cancel
    }

    fn echo(&self) -> JobOutcome {
        let request: EchoRequest<'_> = self.request()?;
        let end = Instant::now().checked_add(Duration::from_millis(request.delay_ms));
        loop {
            if self.cancel().is_raised() {
                return Err(JobError::Cancelled);
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
fn store_dir(text: Option<&str>) -> Result<Option<StoreDir>, JobError> {
    let parse = |text| {
        StoreDir::new(text)
            .map_err(|error| usage(format!("invalid store directory {text:?}: {error}")))
    };
    text.map(parse).transpose()
}

/// Returns the store that a URI names.
fn resolve_store(text: &str, dir: Option<&str>) -> Result<Arc<dyn StoreConfig>, JobError> {
    let store_dir = store_dir(dir)?;
    parse_store_uri(text, &uri_context(store_dir))
}

/// Returns the store that a URI names. A parameter without effect is an error, because the host
/// gets no warnings.
fn parse_store_uri(text: &str, context: &UriContext) -> Result<Arc<dyn StoreConfig>, JobError> {
    let store = resolve_store_uri(text, context)?;
    match store.facts().ignored_parameters.first() {
        None => Ok(store),
        Some(ignored) => Err(Error::InvalidStoreUri {
            text: ignored.uri.clone(),
            reason: format!("parameter {}: {}", ignored.name, ignored.reason),
        }
        .into()),
    }
}

/// Returns the context of store URIs. `auto` ignores the home directory, because libraries do not
/// read the environment.
fn uri_context(store_dir: Option<StoreDir>) -> UriContext {
    UriContext {
        store_dir,
        ..UriContext::default()
    }
}

/// Returns the directories of the local store that a URI names.
fn local_store(text: &str, dir: Option<&str>) -> Result<StoreLayout, JobError> {
    let store = resolve_store(text, dir)?;
    let layout = store.layout().cloned();
    layout.ok_or_else(|| {
        usage(format!(
            "cannot use {text:?}: it is a binary cache; use the path of a local store"
        ))
    })
}

fn usage(message: impl Into<String>) -> JobError {
    failed(ErrorKind::Usage, message)
}

fn failed(kind: ErrorKind, message: impl Into<String>) -> JobError {
    JobError::Failed(Failure::new(kind, message))
}

impl From<DecodeError> for JobError {
    fn from(error: DecodeError) -> JobError {
        usage(format!("invalid request: {error}"))
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> JobError {
        Error::from(error).into()
    }
}

impl From<Error> for JobError {
    fn from(error: Error) -> JobError {
        match error.kind() {
            Kind::Interrupted => JobError::Cancelled,
            kind => failed(translate(kind), error.to_string()),
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
