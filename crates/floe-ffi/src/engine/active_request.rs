//! A request that the engine thread has taken and not completed.

use std::num::NonZeroU64;
use std::sync::Arc;

use floe_messages::{Codec, Method};

use crate::completion::{Completion, Kind, Waiter};
use crate::job_state::JobState;
use crate::request::Request;

/// A request that a worker handles or will handle.
pub(super) struct ActiveRequest {
    pub(super) id: u64,
    pub(super) tag: u64,
    pub(super) method: Method,
    pub(super) codec: Codec,
    pub(super) waiter: Option<Arc<Waiter>>,
    /// Set when the request starts to wait for a worker.
    pub(super) state: Option<Arc<JobState>>,
    /// The time at which it started to wait, in milliseconds since the engine was opened.
    pub(super) queued: u64,
    /// The reason for which it should end early.
    pub(super) reason: Option<Reason>,
    pub(super) deadline: Option<u64>,
    pub(super) wants_progress: bool,
    /// The time at which a worker took it, in milliseconds since the engine was opened.
    pub(super) begun: Option<u64>,
    /// The number of reports about it as a slow request.
    pub(super) slow: u64,
}

/// The reason for which a request should end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Cancelled,
    Deadline,
    ShutDown,
}

impl ActiveRequest {
    /// Creates the entry of a request that has just been taken.
    pub(super) fn new(request: &mut Request) -> ActiveRequest {
        ActiveRequest {
            id: request.id,
            tag: request.tag,
            method: request.method,
            codec: request.codec,
            waiter: request.extra.as_mut().and_then(|extra| extra.waiter.take()),
            state: None,
            queued: 0,
            reason: None,
            deadline: request.deadline.map(NonZeroU64::get),
            wants_progress: request.wants_progress,
            begun: None,
            slow: 0,
        }
    }

    pub(super) fn completion(&self, kind: Kind, payload: Vec<u8>) -> Completion {
        Completion {
            request: self.id,
            tag: self.tag,
            kind,
            method: self.method as u32,
            codec: self.codec,
            payload,
        }
    }
}
