//! The conversion of a request.

use std::num::NonZeroU64;
use std::sync::Arc;

use floe_messages::{Method, PAYLOAD_MAX};

use super::structs::{FloeRequest, WANTS_PROGRESS};
use super::{options, pointer, sink};
use crate::completion::Waiter;
use crate::engine::Shared;
use crate::request::{Extra, Payload, Request};
use crate::status::{Fail, invalid};

/// Reads and checks a request. Returns the function that creates the request from its number and
/// its waiter. The function cannot fail, because the slot in the queue already waits for the
/// request. Until its call, the payload may still be in the host's memory.
///
/// # Safety
///
/// As for [`super::floe_submit`]; the memory stays valid for `'a`.
#[inline]
pub(super) unsafe fn read<'a>(
    engine: &Shared,
    request: *const FloeRequest,
) -> Result<impl FnOnce(u64, Option<Arc<Waiter>>) -> Request + use<'a>, Fail> {
    // SAFETY: guaranteed by the caller.
    let request = unsafe { pointer::read_struct(request, "floe_request")? };
    let method = Method::from_number(request.method)
        .ok_or_else(|| invalid(format!("unknown method number {}", request.method)))?;
    if request.payload_len > PAYLOAD_MAX {
        let text = format!("cannot accept a payload of more than {PAYLOAD_MAX} bytes");
        return Err(invalid(text));
    }
    let codec = options::codec(request.codec)?;
    let sink = sink::sink(&request)?;
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { pointer::bytes(request.payload, request.payload_len)? };
    // Last, because only this step copies data.
    let payload = Payload::prepare(bytes, &engine.budget)?;
    let wants_progress = request.flags & WANTS_PROGRESS != 0;
    let tag = request.tag;
    let deadline = match request.deadline_ms {
        0 => None,
        time => NonZeroU64::new(engine.now().saturating_add(time)),
    };
    Ok(move |id, waiter: Option<Arc<Waiter>>| Request {
        id,
        tag,
        deadline,
        extra: match (&waiter, &sink) {
            (None, None) => None,
            _ => Some(Box::new(Extra { sink, waiter })),
        },
        method,
        codec,
        wants_progress,
        payload: payload(),
    })
}
