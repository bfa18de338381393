//! The end of engines, threads and processes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_messages::{Empty, Method};

use crate::host::*;

#[test]
fn close_completes_all_accepted_requests() {
    let mut options = options();
    options.query_workers = 1;
    let host = Host::with(options, None);
    let ids: Vec<u64> = (0..10).map(|_| host.sleep(60_000)).collect();
    let begun = Instant::now();
    assert_eq!(floe::floe_engine_close(host.engine), OK);
    assert!(begun.elapsed() < Duration::from_secs(30));
    let mut ended: Vec<u64> = host
        .got
        .try_iter()
        .inspect(|got| assert_eq!(got.kind, SHUT_DOWN))
        .map(|got| got.request)
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, ids);
    let ping = TestRequest::new(Method::Ping, &Empty {});
    assert_eq!(ping.submit(host.engine), Err(CLOSED));
    assert_eq!(ping.call(host.engine).unwrap_err(), CLOSED);
    assert_eq!(floe::floe_engine_close(host.engine), OK);
    assert_eq!(floe::floe_engine_shut_down(host.engine), OK);
}

/// Closes an engine while two threads submit, after it has accepted `accepted_before` requests.
/// Each thread submits until the engine refuses, so the close always comes between two submits.
fn race(accepted_before: u64) {
    let host = Host::new();
    let engine = host.engine;
    let accepted = AtomicU64::new(0);
    let submits = || {
        let ping = TestRequest::new(Method::Ping, &Empty {});
        loop {
            match ping.submit(engine) {
                Ok(_) => _ = accepted.fetch_add(1, Ordering::Relaxed),
                Err(BUSY) => thread::yield_now(),
                Err(status) => return assert_eq!(status, CLOSED),
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(submits);
        scope.spawn(submits);
        while accepted.load(Ordering::Relaxed) < accepted_before {
            thread::yield_now();
        }
        assert_eq!(floe::floe_engine_close(engine), OK);
    });
    let ends = host.got.try_iter().filter(Received::is_terminal).count() as u64;
    assert_eq!(ends, accepted.into_inner());
}

#[test]
fn submit_racing_close_ends_once_or_is_refused() {
    let is_full = std::env::var_os("FLOE_TEST_FULL").is_some();
    for attempt in 0..if is_full { 3000 } else { 500 } {
        race(attempt % 200);
    }
}

#[test]
fn close_from_two_threads_waits_in_both() {
    let host = Host::new();
    host.sleep(60_000);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                assert_eq!(floe::floe_engine_close(host.engine), OK);
                assert_eq!(
                    TestRequest::new(Method::Ping, &Empty {}).submit(host.engine),
                    Err(CLOSED)
                );
            });
        }
    });
    assert_eq!(host.got.try_iter().count(), 1);
}

#[test]
fn old_handle_never_reaches_next_engine() {
    let old = open(&options());
    assert_eq!(floe::floe_engine_free(old), OK);
    // Another test of this process may take the slot first, so try several engines.
    let mut engines = (0..1000).map(|_| Host::new());
    let takes_the_place = |host: &Host| host.engine & 0xffff_ffff == old & 0xffff_ffff;
    let host = engines.find(takes_the_place).unwrap();
    assert_ne!(host.engine, old);
    let ping = TestRequest::new(Method::Ping, &Empty {});
    assert_eq!(ping.submit(old), Err(BAD_HANDLE));
    assert_eq!(ping.call(old).unwrap_err(), BAD_HANDLE);
    assert_eq!(floe::floe_cancel(old, 1), BAD_HANDLE);
    assert_eq!(floe::floe_unsubscribe(old, 1), BAD_HANDLE);
    assert_eq!(floe::floe_engine_shut_down(old), BAD_HANDLE);
    assert_eq!(floe::floe_engine_close(old), BAD_HANDLE);
    assert_eq!(floe::floe_engine_free(old), BAD_HANDLE);
    for handle in [0, 1, u64::MAX] {
        assert_eq!(ping.submit(handle), Err(BAD_HANDLE));
    }
    assert!(host.got.try_recv().is_err());
}

#[test]
fn two_engines_do_not_share_requests() {
    let (first, second) = (Host::new(), Host::new());
    let asleep = first.sleep(60_000);
    // An engine ignores the request numbers of another one.
    assert_eq!(floe::floe_cancel(second.engine, asleep), OK);
    assert_eq!(second.ask(Method::Ping, &Empty {}).kind, DONE);
    assert!(first.got.try_recv().is_err());
    drop(second);
    assert_eq!(floe::floe_cancel(first.engine, asleep), OK);
    assert_eq!(first.end().kind, CANCELLED);
}

#[test]
fn engines_can_be_opened_and_freed_repeatedly() {
    for _ in 0..200 {
        let host = Host::new();
        assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
    }
}

#[test]
fn short_threads_lose_no_request() {
    let is_full = std::env::var_os("FLOE_TEST_FULL").is_some();
    let threads = if is_full { 100_000 } else { 3000 };
    let host = Host::new();
    let engine = host.engine;
    let accepted = AtomicU64::new(0);
    for _ in 0..threads / 10 {
        thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    let ping = TestRequest::new(Method::Ping, &Empty {});
                    while let Err(status) = ping.submit(engine) {
                        // New threads reuse the queues of ended threads, which may be full.
                        assert_eq!(status, BUSY, "{}", last_error());
                        thread::yield_now();
                    }
                    accepted.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    }
    assert_eq!(accepted.load(Ordering::Relaxed), threads);
    assert_eq!(floe::floe_engine_close(engine), OK);
    let ends: Vec<Received> = host.got.try_iter().collect();
    assert_eq!(ends.len() as u64, threads);
    // The last requests may still be in their queues when the engine closes.
    assert!(ends.iter().all(|got| [DONE, SHUT_DOWN].contains(&got.kind)));
    assert!(ends.iter().any(|got| got.kind == DONE));
}

#[test]
fn fork_child_is_refused_and_parent_continues() {
    let host = Host::new();
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
    let ping = TestRequest::new(Method::Ping, &Empty {});
    // SAFETY: the child calls only library functions that return at once, and then exits without
    // running code of the parent.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut engine = 0;
        // SAFETY: both pointers are valid.
        let opened = unsafe { floe::floe_engine_open(&options(), &mut engine) };
        let statuses = [
            ping.submit(host.engine)
                .map_or_else(|status| status, |_| OK),
            floe::floe_cancel(host.engine, 1),
            floe::floe_engine_close(host.engine),
            floe::floe_engine_free(host.engine),
            opened,
        ];
        let is_refused = statuses.iter().all(|&status| status == FORKED);
        // SAFETY: exits the child at once.
        unsafe { libc::_exit(if is_refused { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child belongs to this process, and the pointer is valid.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 42);
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}
