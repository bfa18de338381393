//! Defects of nim-ffi, a library with the same purpose, that libfloe must not have.
//!
//! - A constructor that fails keeps its slot, and 32 failures use all slots:
//!   `failed_open_uses_no_slot`.
//! - The report of a slow call frees data that the reply needs:
//!   `contract::slow_request_is_reported_and_continues`.
//! - An old handle reaches the next owner of its slot:
//!   `closing::old_handle_never_reaches_next_engine`.
//! - Adding or removing a listener inside a listener deadlocks:
//!   `subscriber_may_subscribe_and_unsubscribe`.
//! - Requests that a shutdown refuses leak their payloads:
//!   `payloads_of_shut_down_requests_are_freed`.
//! - One event too many ends all service:
//!   `queues::excess_events_are_counted_as_lost`.
//! - A host may submit without any limit:
//!   `queues::full_queue_returns_busy_until_taken`.
//! - Listeners and destructors dereference any pointer:
//!   `functions_reject_invalid_handles`.
//! - A text ends at its first NUL:
//!   `contract::codecs_round_trip_bytes_and_texts_with_nul`.
//! - Each asynchronous call of the C++ layer starts a thread:
//!   `many_futures_need_no_thread_each` in bindings/cpp/tests.
//! - Handles of objects outlive their engine:
//!   `contract::stop_with_bad_server_handle_fails`.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floe_messages::{EchoRequest, Empty, EventKind, Method};

use crate::host::*;

#[test]
fn failed_open_uses_no_slot() {
    let mut wrong = options();
    wrong.codec = 99;
    let mut engine = 0;
    // Twice as many as there are slots.
    for _ in 0..2048 {
        // SAFETY: both pointers are valid.
        let status = unsafe { floe::floe_engine_open(&wrong, &mut engine) };
        assert_eq!((status, engine), (INVALID, 0));
    }
    let host = Host::new();
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}

fn subscribe(engine: u64) -> Result<u64, i32> {
    let (mask, mut id) = (1 << EventKind::Echoed as u32, 0);
    // SAFETY: the pointer is valid.
    match unsafe { floe::floe_subscribe(engine, mask, None, ptr::null_mut(), &mut id) } {
        OK => Ok(id),
        status => Err(status),
    }
}

#[test]
fn subscriber_may_subscribe_and_unsubscribe() {
    let (received, newest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counts, current) = (received.clone(), newest.clone());
    // Each event replaces its subscriber.
    let replace = move |engine, got: &Received| {
        if got.kind == EVENT {
            counts.fetch_add(1, Ordering::SeqCst);
            let next = subscribe(engine).unwrap();
            let old = current.swap(next, Ordering::SeqCst);
            assert_eq!(floe::floe_unsubscribe(engine, old), OK);
        }
    };
    let host = Host::with(options(), Some(Box::new(replace)));
    newest.store(subscribe(host.engine).unwrap(), Ordering::SeqCst);
    let loud = EchoRequest {
        event: true,
        ..echo("loud", 0)
    };
    for round in 1..=3 {
        assert_eq!(host.ask(Method::Echo, &loud).kind, DONE);
        assert_eq!(received.load(Ordering::SeqCst), round);
    }
    let newest = newest.load(Ordering::SeqCst);
    assert_eq!(floe::floe_unsubscribe(host.engine, newest), OK);
}

#[test]
fn payloads_of_shut_down_requests_are_freed() {
    const LEN: usize = 1 << 20;
    let mut options = options();
    (options.query_workers, options.payload_bytes) = (1, 20 * LEN as u64);
    let text = "x".repeat(LEN);
    let asleep = TestRequest::new(Method::Echo, &echo(&text, 60_000));
    // LeakSanitizer finds leaked payloads (`cargo xtask sanitize address`). The engine finds
    // payloads that still count, because its budget suffices for 19 of them.
    for _ in 0..3 {
        let host = Host::with(options, None);
        for _ in 0..19 {
            asleep.submit(host.engine).unwrap();
        }
        assert_eq!(asleep.submit(host.engine), Err(BUSY));
        assert_eq!(floe::floe_engine_close(host.engine), OK);
        let ends: Vec<Received> = host.got.try_iter().collect();
        assert_eq!(ends.len(), 19);
        assert!(ends.iter().all(|got| got.kind == SHUT_DOWN));
    }
}

#[test]
fn functions_reject_invalid_handles() {
    let ping = TestRequest::new(Method::Ping, &Empty {});
    let host = Host::new();
    let address = &raw const host as u64;
    for handle in [0, 1, u64::MAX, address, host.engine ^ 1 << 40] {
        assert_eq!(ping.submit(handle), Err(BAD_HANDLE));
        assert_eq!(ping.call(handle).unwrap_err(), BAD_HANDLE);
        assert_eq!(subscribe(handle), Err(BAD_HANDLE));
        assert_eq!(floe::floe_unsubscribe(handle, 1), BAD_HANDLE);
        assert_eq!(floe::floe_cancel(handle, 1), BAD_HANDLE);
        assert_eq!(floe::floe_queue_wait(handle, 0), BAD_HANDLE);
        let (mut descriptor, mut count) = (-1, 1);
        let mut completion = empty();
        let out: *mut c_void = (&raw mut completion).cast();
        // SAFETY: all pointers are valid.
        unsafe {
            assert_eq!(
                floe::floe_queue_descriptor(handle, &mut descriptor),
                BAD_HANDLE
            );
            let size = completion.struct_size;
            assert_eq!(
                floe::floe_queue_take(handle, out, size, 1, &mut count),
                BAD_HANDLE
            );
        }
        assert_eq!(descriptor, -1);
        assert_eq!(floe::floe_engine_shut_down(handle), BAD_HANDLE);
        assert_eq!(floe::floe_engine_close(handle), BAD_HANDLE);
        assert_eq!(floe::floe_engine_free(handle), BAD_HANDLE);
    }
    // An invalid subscription of a valid engine.
    assert_eq!(floe::floe_unsubscribe(host.engine, 12345), BAD_HANDLE);
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}
