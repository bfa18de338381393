//! Dispatch of requests, to workers if they need work, and their completion.

use std::mem;
use std::sync::Arc;

use floe_messages::{
    BytesReply, BytesRequest, DecodeError, EchoReply, EchoRequest, Error, ErrorKind, EventKind,
    Method,
};

use super::Delivery;
use super::active_request::{ActiveRequest, Reason};
use super::thread::Engine;
use super::work_queue::Job;
use crate::completion::{Completion, Failure, Kind, encode, texts};
use crate::job_state::JobState;
use crate::request::Request;

impl Engine {
    /// Replies to a request, or queues it for a worker. Either way it gets one terminal completion.
    pub(super) fn dispatch(&mut self, mut request: Request) {
        let active = ActiveRequest::new(&mut request);
        if self.is_closing {
            return self.complete_ended(&active, Some(Reason::ShutDown));
        }
        if !self.cancelled_early.is_empty() && self.cancelled_early.remove(&request.id).is_some() {
            return self.complete_ended(&active, Some(Reason::Cancelled));
        }
        if active.deadline.is_some_and(|end| end <= self.shared.now()) {
            return self.complete_ended(&active, Some(Reason::Deadline));
        }
        let mut reply = mem::take(&mut self.buffer);
        reply.clear();
        match self.reply_to(&request, &mut reply) {
            Ok(true) => self.complete(&active, Kind::Done, reply),
            Ok(false) => {
                self.buffer = reply;
                self.enqueue(request, active);
            }
            Err(failure) => self.fail(&active, &failure),
        }
    }

    /// Replies to requests that take no time. Returns `false` for all others.
    fn reply_to(&mut self, request: &Request, reply: &mut Vec<u8>) -> Result<bool, Failure> {
        let (codec, bytes) = (request.codec, request.payload.bytes());
        match request.method {
            Method::Ping => Ok(true),
            Method::Bytes => {
                let BytesRequest { data } = codec.decode(bytes)?;
                make_room(reply, data.len())?;
                codec.encode(&BytesReply { data }, reply);
                Ok(true)
            }
            Method::Echo => {
                let echo: EchoRequest<'_> = codec.decode(bytes)?;
                if echo.delay_ms > 0 {
                    return Ok(false);
                }
                let message = echo.message;
                make_room(reply, message.len())?;
                codec.encode(&EchoReply { message }, reply);
                if echo.event {
                    let payload = encode(self.shared.codec, &EchoReply { message });
                    self.emit(EventKind::Echoed, payload);
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Queues a request for a worker.
    pub(super) fn enqueue(&mut self, request: Request, mut active: ActiveRequest) {
        self.schedule_poll(active.deadline.unwrap_or(u64::MAX));
        active.queued = self.shared.now();
        let state = Arc::<JobState>::default();
        active.state = Some(state.clone());
        let queue = self.work_queues.of(active.method);
        queue.waiting.push_back(Box::new(Job { request, state }));
        self.active.insert(active.id, active);
    }

    /// Passes waiting jobs to idle workers.
    pub(super) fn start_waiting(&mut self) {
        while let Some((id, is_started)) = self.work_queues.start_next(&self.shared) {
            if is_started {
                self.mark_started(id);
            } else if let Some(active) = self.active.remove(&id) {
                let text = "cannot start a worker thread: the system refuses it; try again later";
                self.fail(&active, &Failure::new(ErrorKind::Failed, text));
            }
        }
    }

    fn mark_started(&mut self, id: u64) {
        let now = self.shared.now();
        let mut time = self.shared.limits.slow_after;
        if let Some(active) = self.active.get_mut(&id) {
            active.begun = Some(now);
            if active.wants_progress {
                time = self.shared.limits.progress_interval;
            }
        }
        self.schedule_poll(now + time.as_millis() as u64);
    }

    /// Completes a request as failed.
    pub(super) fn fail(&mut self, active: &ActiveRequest, failure: &Failure) {
        let error = Error {
            kind: failure.kind,
            message: &failure.message,
            causes: texts(&failure.causes),
        };
        self.complete(active, Kind::Failed, encode(active.codec, &error));
    }

    /// Completes a request, which must not be in any table any more.
    pub(super) fn complete(&mut self, active: &ActiveRequest, kind: Kind, payload: Vec<u8>) {
        let completion = active.completion(kind, payload);
        match &active.waiter {
            Some(waiter) => waiter.complete(completion),
            None => self.send(completion),
        }
    }

    /// Passes a completion to the callback or the queue.
    pub(super) fn send(&mut self, completion: Completion) {
        match &self.shared.delivery {
            Delivery::Callback(callback) => {
                callback.call(&completion);
                // The next reply reuses this buffer.
                self.buffer = completion.payload;
            }
            Delivery::Queue(_) => self.batch.push(completion),
        }
    }
}

/// Reserves memory for a reply that is as long as its request. A large request must not abort the
/// process when memory is short.
fn make_room(reply: &mut Vec<u8>, content_len: usize) -> Result<(), Failure> {
    reply.try_reserve(content_len + FRAME_MAX).map_err(|_| {
        let text = "cannot allocate the reply: out of memory; send shorter requests";
        Failure::new(ErrorKind::Failed, text)
    })
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Failure {
        Failure::new(ErrorKind::Usage, error.to_string())
    }
}

/// More than any codec adds to one text or byte string.
const FRAME_MAX: usize = 64;
