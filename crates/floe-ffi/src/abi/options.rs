//! The options of an engine.

use std::time::Duration;

use floe_messages::Codec;

use super::structs::FloeEngineOptions;
use crate::limits::Limits;
use crate::status::{Fail, Status, fail};

pub(super) fn codec(number: u32) -> Result<Codec, Fail> {
    if number == 0 {
        // The host did not set it.
        return Ok(Codec::Flat);
    }
    Codec::from_number(number).ok_or_else(|| {
        let text = format!("unknown codec number {number}; use FLOE_CBOR or FLOE_FLAT");
        fail(Status::Invalid, text)
    })
}

pub(super) fn limits(options: &FloeEngineOptions) -> Limits {
    let default = Limits::default();
    let number = |given: u64, default: usize| match given {
        0 => default,
        given => usize::try_from(given).unwrap_or(usize::MAX),
    };
    let time = |given: u32, default: Duration| match given {
        0 => default,
        given => Duration::from_millis(given.into()),
    };
    Limits {
        per_thread: number(options.per_thread.into(), default.per_thread),
        in_flight: number(options.in_flight, default.in_flight),
        payload_bytes: number(options.payload_bytes, default.payload_bytes),
        query_workers: number(options.query_workers.into(), default.query_workers),
        copy_workers: number(options.copy_workers.into(), default.copy_workers),
        progress_interval: time(options.progress_interval_ms, default.progress_interval),
        slow_after: time(options.slow_after_ms, default.slow_after),
    }
}
