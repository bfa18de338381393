//! What each request does, on a worker.

mod descriptor;
mod info;
mod moves;
mod nar;
mod serve;
mod verify;

use std::time::{Duration, Instant};

use floe_engine::{Cancel, Error, ErrorKind as Kind, StoreUri};
use floe_format::StoreDir;
use floe_messages::{Codec, DecodeError, EchoReply, EchoRequest, ErrorKind, Message, Method};

use crate::completion::{Failure, Outcome, encode};
use crate::engine::Shared;
use crate::pool::Job;

/// Does the work of a request.
pub(crate) fn run(mut job: Job, engine: &Shared) -> Outcome {
    let sink = job
        .request
        .extra
        .as_mut()
        .and_then(|extra| extra.sink.take());
    let work = Work {
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
        Method::Install | Method::Copy => work.move_paths(),
        Method::Verify => work.verify(),
        Method::Nar => work.nar(sink),
        Method::Serve => work.serve(),
        Method::Stop => work.stop(),
        // The engine answers these itself.
        Method::Ping | Method::Bytes => Ok(Vec::new()),
    };
    match done {
        Ok(reply) => Outcome::Done(reply),
        Err(Ended::Cancelled) => Outcome::Cancelled,
        Err(Ended::Failed(failure)) => Outcome::Failed(failure),
    }
}

/// A request at work.
struct Work<'a> {
    codec: Codec,
    payload: &'a [u8],
    job: &'a Job,
    engine: &'a Shared,
}

/// The encoded reply, or why there is none.
type Done = Result<Vec<u8>, Ended>;

/// Why the work ended without a reply.
enum Ended {
    Cancelled,
    Failed(Failure),
}

impl<'a> Work<'a> {
    fn request<M: Message<'a>>(&self) -> Result<M, Ended> {
        Ok(self.codec.decode(self.payload)?)
    }

    fn reply<'m>(&self, message: &impl Message<'m>) -> Done {
        Ok(encode(self.codec, message))
    }

    fn cancel(&self) -> &Cancel {
        &self.job.cancel
    }

    fn echo(&self) -> Done {
        let request: EchoRequest<'_> = self.request()?;
        let end = Instant::now().checked_add(Duration::from_millis(request.delay_ms));
        loop {
            if self.cancel().is_raised() {
                return Err(Ended::Cancelled);
            }
            let left = end.map_or(NAP, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let message = request.message;
                return self.reply(&EchoReply { message });
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// The store directory that a request names.
fn store_dir(text: Option<&str>) -> Result<Option<StoreDir>, Ended> {
    text.map(StoreDir::new).transpose().map_err(|error| {
        usage(format!(
            "the store directory {:?}: {error}",
            text.unwrap_or("")
        ))
    })
}

/// A store or a cache. `auto` finds no home: a library looks at no environment.
fn location(text: &str, dir: Option<&StoreDir>) -> Result<StoreUri, Ended> {
    Ok(StoreUri::parse(text, dir, None)?)
}

/// A store on this machine.
fn local_store(text: &str, dir: Option<&StoreDir>) -> Result<floe_store::StoreLayout, Ended> {
    match location(text, dir)? {
        StoreUri::Local(store) => Ok(store.layout),
        StoreUri::Http(_) | StoreUri::File(_) => Err(usage(format!(
            "{text:?} is a binary cache; this request is for local stores"
        ))),
    }
}

fn usage(message: String) -> Ended {
    Ended::Failed(Failure::new(ErrorKind::Usage, message))
}

impl From<DecodeError> for Ended {
    fn from(error: DecodeError) -> Ended {
        usage(format!("the request cannot be read: {error}"))
    }
}

impl From<floe_store::StoreError> for Ended {
    fn from(error: floe_store::StoreError) -> Ended {
        Error::from(error).into()
    }
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        match error.kind() {
            Kind::Interrupted => Ended::Cancelled,
            kind => Ended::Failed(Failure::new(translate(kind), error.to_string())),
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

/// How soon a delayed echo notices that it is to end.
const NAP: Duration = Duration::from_millis(10);
