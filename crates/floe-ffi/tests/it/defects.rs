//! Defects that nim-ffi has, a library with the same purpose; libfloe must not have them.
//!
//! - a constructor that fails keeps its place, and 32 of them are the end:
//!   `openings_that_fail_take_no_place`;
//! - the report of a slow call frees what the reply needs:
//!   `contract::a_slow_request_is_reported_and_goes_on`;
//! - an old handle reaches the next owner of its place:
//!   `closing::a_stale_handle_never_reaches_the_next_engine`;
//! - to add or remove a listener inside a listener locks up:
//!   `a_listener_may_add_and_remove_listeners`;
//! - what a shutdown refuses leaks what it refers to:
//!   `payloads_of_requests_that_are_shut_down_are_freed`;
//! - one event too many ends all service:
//!   `queues::events_beyond_the_bound_are_counted_and_the_engine_goes_on`;
//! - nothing holds back who submits too fast:
//!   `queues::a_host_that_takes_nothing_is_told_busy_and_can_go_on_later`;
//! - listeners and destructors follow any pointer:
//!   `no_function_follows_a_handle_that_is_none`;
//! - text ends at its first NUL:
//!   `contract::both_codecs_bring_back_what_was_sent_and_texts_may_hold_nul`;
//! - each asynchronous call of C++ is a thread:
//!   `many_futures_need_no_thread_each` in bindings/cpp/tests;
//! - handles of objects outlive their engine:
//!   `contract::a_stale_server_handle_is_an_error`.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floe_messages::{EchoRequest, Empty, EventKind, Method};

use crate::host::*;

#[test]
fn openings_that_fail_take_no_place() {
    let mut wrong = options();
    wrong.codec = 99;
    let mut engine = 0;
    // Twice as many as there are places.
    for _ in 0..2048 {
        // SAFETY: both pointers are good.
        let status = unsafe { floe::floe_engine_open(&wrong, &mut engine) };
        assert_eq!((status, engine), (INVALID, 0));
    }
    let host = Host::new();
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}

fn subscribe(engine: u64) -> Result<u64, i32> {
    let (mask, mut id) = (1 << EventKind::Echoed as u32, 0);
    // SAFETY: the pointer is good.
    match unsafe { floe::floe_subscribe(engine, mask, None, ptr::null_mut(), &mut id) } {
        OK => Ok(id),
        status => Err(status),
    }
}

#[test]
fn a_listener_may_add_and_remove_listeners() {
    let (heard, newest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counts, current) = (heard.clone(), newest.clone());
    // Each event replaces the one who hears of it.
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
        assert_eq!(heard.load(Ordering::SeqCst), round);
    }
    let newest = newest.load(Ordering::SeqCst);
    assert_eq!(floe::floe_unsubscribe(host.engine, newest), OK);
}

#[test]
fn payloads_of_requests_that_are_shut_down_are_freed() {
    const LEN: usize = 1 << 20;
    let mut options = options();
    (options.query_workers, options.payload_bytes) = (1, 20 * LEN as u64);
    let text = "x".repeat(LEN);
    let asleep = TestRequest::new(Method::Echo, &echo(&text, 60_000));
    // What is lost here would be found by LeakSanitizer (`cargo xtask sanitize address`), and what
    // still counts by the engine itself: its budget is for 19 of these.
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
fn no_function_follows_a_handle_that_is_none() {
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
        // SAFETY: all pointers are good.
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
    // A subscription that is none, on an engine that is one.
    assert_eq!(floe::floe_unsubscribe(host.engine, 12345), BAD_HANDLE);
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}
