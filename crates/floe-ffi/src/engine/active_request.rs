//! A request that the engine has taken and not completed.

use std::num::NonZeroU64;
use std::sync::Arc;

use floe_engine::Cancel;
use floe_messages::{Codec, Method};

use crate::completion::{Completion, Kind, Waiter};
use crate::progress::ProgressCell;
use crate::request::Request;

/// A request that a worker does, or will.
pub(super) struct ActiveRequest {
    pub(super) id: u64,
    pub(super) tag: u64,
    pub(super) method: Method,
    pub(super) codec: Codec,
    pub(super) waiter: Option<Arc<Waiter>>,
    /// Both are there once it waits for a worker.
    pub(super) work: Option<(Cancel, Arc<ProgressCell>)>,
    /// Why it is to end early.
    pub(super) reason: Option<Reason>,
    pub(super) deadline: Option<u64>,
    pub(super) wants_progress: bool,
    /// When a worker got it, in milliseconds since the engine was opened.
    pub(super) begun: Option<u64>,
    /// How often it was reported as slow.
    pub(super) slow: u64,
}

/// Why a request is to end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Cancelled,
    Deadline,
    ShutDown,
}

impl ActiveRequest {
    /// One that is not kept, since it is answered at once.
    pub(super) fn at_once(request: &mut Request) -> ActiveRequest {
        ActiveRequest {
            id: request.id,
            tag: request.tag,
            method: request.method,
            codec: request.codec,
            waiter: request.extra.as_mut().and_then(|extra| extra.waiter.take()),
            work: None,
            reason: None,
            deadline: request.deadline.map(NonZeroU64::get),
            wants_progress: request.wants_progress,
            begun: None,
            slow: 0,
        }
    }

    pub(super) fn notice(&self, kind: Kind, payload: Vec<u8>) -> Completion {
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
