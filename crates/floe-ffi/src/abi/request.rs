//! The conversion of a request.

use std::num::NonZeroU64;
use std::sync::Arc;

use floe_messages::{Codec, Method, PAYLOAD_MAX};

use super::structs::{FloeRequest, WANTS_PROGRESS};
use super::{options, pointer, sink};
use crate::completion::Waiter;
use crate::engine::Shared;
use crate::request::{Extra, PayloadRef, Request, Sink};
use crate::status::{Fail, Status, fail};

/// A checked request whose payload may still be in the host's memory.
pub(super) struct ParsedRequest<'a> {
    method: Method,
    codec: Codec,
    wants_progress: bool,
    tag: u64,
    deadline: Option<NonZeroU64>,
    sink: Option<Sink>,
    payload: PayloadRef<'a>,
}

impl ParsedRequest<'_> {
    /// Cannot fail: the slot in the queue already waits for the request.
    #[inline]
    pub(super) fn into_request(self, id: u64, waiter: Option<Arc<Waiter>>) -> Request {
        let sink = self.sink;
        Request {
            id,
            tag: self.tag,
            deadline: self.deadline,
            extra: match (&waiter, &sink) {
                (None, None) => None,
                _ => Some(Box::new(Extra { sink, waiter })),
            },
            method: self.method,
            codec: self.codec,
            wants_progress: self.wants_progress,
            payload: self.payload.into_payload(),
        }
    }
}

/// Reads and checks a request.
///
/// # Safety
///
/// As for [`super::floe_submit`]; the memory stays valid for `'a`.
#[inline]
pub(super) unsafe fn read<'a>(
    engine: &Shared,
    request: *const FloeRequest,
) -> Result<ParsedRequest<'a>, Fail> {
    // SAFETY: guaranteed by the caller.
    let request = unsafe { pointer::read_struct(request, "floe_request")? };
    let method = Method::from_number(request.method).ok_or_else(|| {
        let text = format!("unknown method number {}", request.method);
        fail(Status::Invalid, text)
    })?;
    if request.payload_len > PAYLOAD_MAX {
        let text = format!("cannot accept a payload of more than {PAYLOAD_MAX} bytes");
        return Err(fail(Status::Invalid, text));
    }
    let codec = options::codec(request.codec)?;
    let sink = sink::sink(&request)?;
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { pointer::bytes(request.payload, request.payload_len)? };
    // Last, because only this step copies data.
    let payload = PayloadRef::acquire(bytes, &engine.budget)?;
    Ok(ParsedRequest {
        method,
        codec,
        wants_progress: request.flags & WANTS_PROGRESS != 0,
        tag: request.tag,
        deadline: match request.deadline_ms {
            0 => None,
            time => NonZeroU64::new(engine.now().saturating_add(time)),
        },
        sink,
        payload,
    })
}
