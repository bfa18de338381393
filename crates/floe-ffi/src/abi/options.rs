//! The options of an engine.

use std::time::Duration;

use floe_messages::Codec;

use super::structs::FloeEngineOptions;
use crate::limits::Limits;
use crate::status::{Fail, invalid};

pub(super) fn codec(number: u32) -> Result<Codec, Fail> {
    match number {
        // The host did not set it.
        0 => Ok(Codec::Flat),
        _ => Codec::from_number(number).ok_or_else(|| {
            invalid(format!(
                "unknown codec number {number}; use FLOE_CBOR or FLOE_FLAT"
            ))
        }),
    }
}

/// Returns the limits that a host has set. Zero selects the default.
pub(super) fn limits(options: &FloeEngineOptions) -> Limits {
    Limits {
        // 8 MiB for requests of 128 bytes.
        per_thread: number(options.per_thread, 64 * 1024),
        // The same number again, so that one busy thread can fill both.
        in_flight: number(options.in_flight, 64 * 1024),
        // A few payloads of the maximum length.
        payload_bytes: number(options.payload_bytes, 256 << 20),
        // Queries mostly wait for the network or the disk.
        query_workers: number(options.query_workers, 8),
        // Each copy uses all cores by itself, but several can wait for different networks.
        copy_workers: number(options.copy_workers, 4),
        // A person cannot follow faster updates.
        progress_interval: millis(options.progress_interval_ms, 100),
        // Longer than any query that does not wait for the network.
        slow_after: millis(options.slow_after_ms, 5000),
    }
}

fn number(given: impl Into<u64>, default: usize) -> usize {
    match given.into() {
        0 => default,
        given => usize::try_from(given).unwrap_or(usize::MAX),
    }
}

fn millis(given: u32, default: u32) -> Duration {
    let millis = if given == 0 { default } else { given };
    Duration::from_millis(millis.into())
}
