//! The contract of requests: accepted ones complete exactly once, refused ones never.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_messages::{
    BytesReply, BytesRequest, Codec, EchoReply, EchoRequest, Empty, Error, ErrorKind, EventKind,
    Method, PathInfoRequest, Progress, Slow, StopRequest,
};
use parking_lot::Mutex;

use crate::host::*;

#[test]
fn requests_of_many_threads_complete_once_with_tags() {
    const THREADS: u64 = 8;
    const EACH: u64 = 5000;
    let host = Host::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let engine = host.engine;
            scope.spawn(move || {
                for number in 0..EACH {
                    let tag = thread * EACH + number;
                    // Some of them need a worker.
                    let delay = u64::from(number % 500 == 0);
                    let ask = TestRequest::new(Method::Echo, &echo("x", delay)).tag(tag);
                    while ask.submit(engine) == Err(BUSY) {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut ends = vec![0; (THREADS * EACH) as usize];
        for _ in 0..THREADS * EACH {
            let got = host.next();
            assert_eq!(got.kind, DONE);
            ends[got.tag as usize] += 1;
        }
        assert!(ends.iter().all(|&count| count == 1));
    });
    assert_eq!(floe::floe_engine_close(host.engine), OK);
    assert!(
        host.got.try_recv().is_err(),
        "more completions than requests"
    );
}

#[test]
fn codecs_round_trip_bytes_and_texts_with_nul() {
    let host = Host::new();
    for codec in [Codec::Cbor, Codec::Flat] {
        for len in [0, 1, 71, 72, 100_000] {
            let data: Vec<u8> = (0..len).map(|byte: u32| byte as u8).collect();
            let ask = TestRequest::coded(codec, Method::Bytes, &BytesRequest { data: &data });
            let got = ask.call(host.engine).unwrap();
            assert_eq!(got.codec, codec as u32);
            assert_eq!(got.reply::<BytesReply<'_>>().data, data);
        }
        let ask = TestRequest::coded(codec, Method::Echo, &echo("a\0b", 0));
        let got = ask.call(host.engine).unwrap();
        assert_eq!(got.reply::<EchoReply<'_>>().message, "a\0b");
    }
}

#[test]
fn invalid_payload_fails_and_engine_continues() {
    let host = Host::new();
    for codec in [1, 2] {
        for method in 1..=11 {
            for payload in [
                &b""[..],
                b"\xff",
                b"FLO1 and so on, and on, and on",
                &[0xa0; 3],
            ] {
                let ask = TestRequest::raw(codec, method, payload.to_vec());
                let got = ask.call(host.engine).unwrap();
                assert_eq!(got.kind, FAILED, "{codec} {method} {payload:?}");
                let error: Error<'_> = got.message();
                assert_eq!(error.kind, ErrorKind::Usage, "{error:?}");
                assert!(!error.message.is_empty());
            }
        }
    }
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}

#[test]
fn refused_request_gets_no_completion() {
    let host = Host::new();
    for (codec, method) in [(0, 0), (0, 13), (0, u32::MAX), (3, 12), (u32::MAX, 12)] {
        let ask = TestRequest::raw(codec, method, Vec::new());
        assert_eq!(ask.submit(host.engine), Err(INVALID));
        assert!(last_error().contains("number"), "{}", last_error());
    }
    let mut ask = TestRequest::raw(0, 12, Vec::new());
    ask.request.struct_size = 8;
    assert_eq!(ask.submit(host.engine), Err(INVALID));
    assert!(last_error().contains("struct_size"), "{}", last_error());
    // SAFETY: no pointer is dereferenced.
    let status = unsafe { floe::floe_submit(host.engine, std::ptr::null(), std::ptr::null_mut()) };
    assert_eq!(status, INVALID);
    // SAFETY: as above.
    let status = unsafe { floe::floe_engine_open(&options(), std::ptr::null_mut()) };
    assert_eq!(status, INVALID);
    assert_eq!(floe::floe_engine_close(host.engine), OK);
    assert!(host.got.try_recv().is_err());
}

#[test]
fn newer_struct_is_accepted_unless_unknown_field_is_set() {
    #[repr(C)]
    struct Newer {
        request: floe::FloeRequest,
        unknown: u64,
    }
    let host = Host::new();
    let mut newer = Newer {
        request: TestRequest::raw(0, Method::Ping as u32, Vec::new()).request,
        unknown: 0,
    };
    newer.request.struct_size = size_of::<Newer>();
    let submit = |newer: &Newer| {
        // SAFETY: it has as many bytes as its size says.
        unsafe { floe::floe_submit(host.engine, &raw const newer.request, std::ptr::null_mut()) }
    };
    assert_eq!(submit(&newer), OK);
    assert_eq!(host.next().kind, DONE);
    newer.unknown = 1;
    assert_eq!(submit(&newer), INVALID);
    assert!(last_error().contains("not support"), "{}", last_error());
}

#[test]
fn cancel_ends_waiting_and_running_requests_once() {
    let mut options = options();
    options.query_workers = 1;
    let host = Host::with(options, None);
    let at_work = host.sleep(60_000);
    let waiting = host.sleep(60_000);
    // When the ping is answered, the first request has started.
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
    let begun = Instant::now();
    for _ in 0..2 {
        assert_eq!(floe::floe_cancel(host.engine, waiting), OK);
        assert_eq!(floe::floe_cancel(host.engine, at_work), OK);
    }
    let mut ends = [host.end(), host.end()];
    ends.sort_by_key(|got| got.request != at_work);
    assert!(
        ends.iter()
            .all(|got| got.kind == CANCELLED && got.payload.is_empty())
    );
    assert_eq!((ends[0].request, ends[1].request), (at_work, waiting));
    assert!(begun.elapsed() < Duration::from_secs(30));
    // A completed request, and an unknown number.
    assert_eq!(floe::floe_cancel(host.engine, at_work), OK);
    assert_eq!(floe::floe_cancel(host.engine, u64::MAX), OK);
    assert_eq!(host.ask(Method::Ping, &Empty {}).kind, DONE);
}

#[test]
fn cancel_before_request_arrives_is_kept() {
    let host = Host::new();
    for _ in 0..300 {
        let id = host.sleep(20_000);
        let engine = host.engine;
        // The queue of the cancelling thread may be visited before the queue of this thread.
        thread::spawn(move || assert_eq!(floe::floe_cancel(engine, id), OK));
        let begun = Instant::now();
        assert_eq!(host.end().kind, CANCELLED);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn deadline_ends_only_late_requests() {
    let mut options = options();
    options.query_workers = 1;
    let host = Host::with(options, None);
    let engine = host.engine;
    let late = TestRequest::new(Method::Echo, &echo("late", 60_000)).deadline(50);
    let at_work = late.submit(engine).unwrap();
    let waiting = late.submit(engine).unwrap();
    for _ in 0..2 {
        let got = host.end();
        assert_eq!(got.kind, FAILED);
        assert!([at_work, waiting].contains(&got.request));
        assert_eq!(got.message::<Error<'_>>().kind, ErrorKind::Deadline);
    }
    let early = TestRequest::new(Method::Echo, &echo("early", 5)).deadline(50_000);
    assert_eq!(early.call(engine).unwrap().kind, DONE);
}

#[test]
fn slow_request_is_reported_and_continues() {
    let mut options = options();
    options.slow_after_ms = 30;
    let host = Host::with(options, None);
    let mut subscription = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe {
        let mask = 1 << EventKind::Slow as u32;
        floe::floe_subscribe(
            host.engine,
            mask,
            None,
            std::ptr::null_mut(),
            &mut subscription,
        )
    };
    assert_eq!(status, OK);
    // A busy machine may pause between two reports of the same request, so try longer ones.
    let is_reported_twice = |milliseconds| {
        let id = host.sleep(milliseconds);
        let mut reports = 0;
        loop {
            let got = host.next();
            if got.kind != EVENT {
                assert_eq!((got.kind, got.request), (DONE, id));
                return reports >= 2;
            }
            assert_eq!(got.method, EventKind::Slow as u32);
            let slow: Slow = got.message();
            assert_eq!((slow.request, slow.method), (id, Method::Echo as u64));
            assert!(slow.elapsed_ms >= 30 * (reports + 1));
            reports += 1;
        }
    };
    let times = [200, 2_000, 20_000];
    assert!(
        times.into_iter().any(is_reported_twice),
        "no request was reported twice"
    );
}

#[test]
fn call_among_many_threads_returns_its_own_reply() {
    let host = Host::new();
    let engine = host.engine;
    thread::scope(|scope| {
        for thread in 0..6 {
            scope.spawn(move || {
                for number in 0..500 {
                    let text = format!("{thread} {number}");
                    let got = TestRequest::new(Method::Echo, &echo(&text, 0))
                        .call(engine)
                        .unwrap();
                    assert_eq!(got.reply::<EchoReply<'_>>().message, text);
                }
            });
        }
    });
    assert!(
        host.got.try_recv().is_err(),
        "a reply also went to the callback"
    );
}

#[test]
fn callback_may_submit_and_cancel_but_not_wait() {
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let inside = statuses.clone();
    let host = Host::with(
        options(),
        Some(Box::new(move |engine, got| {
            if got.tag != 1 {
                return;
            }
            let more = TestRequest::new(Method::Echo, &echo("more", 0)).tag(2);
            let call = TestRequest::new(Method::Ping, &Empty {})
                .call(engine)
                .map(|_| ());
            inside.lock().extend([
                more.submit(engine).map_or_else(|status| status, |_| OK),
                floe::floe_cancel(engine, 12345),
                call.map_or_else(|status| status, |()| OK),
                floe::floe_engine_close(engine),
                floe::floe_engine_free(engine),
            ]);
        })),
    );
    let first = TestRequest::new(Method::Echo, &echo("first", 0)).tag(1);
    first.submit(host.engine).unwrap();
    let tags = [host.end().tag, host.end().tag];
    // The callback stores its completion after it has submitted the second request.
    assert_eq!(tags, [1, 2]);
    assert_eq!(
        *statuses.lock(),
        [OK, OK, WOULD_DEADLOCK, WOULD_DEADLOCK, WOULD_DEADLOCK]
    );
}

#[test]
fn unsubscribe_in_own_callback_stops_events() {
    let received = Arc::new(AtomicU64::new(0));
    let handle = Arc::new(AtomicU64::new(0));
    let (counts, own) = (received.clone(), handle.clone());
    let host = Host::with(
        options(),
        Some(Box::new(move |engine, got| {
            if got.kind == EVENT {
                counts.fetch_add(1, Ordering::SeqCst);
                let status = floe::floe_unsubscribe(engine, own.load(Ordering::SeqCst));
                assert_eq!(status, OK);
            }
        })),
    );
    let mut subscription = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe {
        let mask = 1 << EventKind::Echoed as u32;
        floe::floe_subscribe(
            host.engine,
            mask,
            None,
            std::ptr::null_mut(),
            &mut subscription,
        )
    };
    assert_eq!(status, OK);
    handle.store(subscription, Ordering::SeqCst);
    let loud = EchoRequest {
        event: true,
        ..echo("loud", 0)
    };
    for _ in 0..3 {
        let id = host.submit(Method::Echo, &loud);
        assert_eq!(host.end().request, id);
    }
    assert_eq!(received.load(Ordering::SeqCst), 1);
    assert_eq!(
        floe::floe_unsubscribe(host.engine, subscription),
        BAD_HANDLE
    );
}

#[test]
fn unsubscribe_returns_after_last_callback() {
    unsafe extern "C" fn count_event(
        context: *mut std::ffi::c_void,
        _: *const floe::FloeCompletion,
    ) {
        // SAFETY: the test keeps it until it has unsubscribed.
        let state = unsafe { &*context.cast::<AtomicU64>() };
        assert_ne!(
            state.load(Ordering::SeqCst),
            GONE,
            "called after the return"
        );
        state.fetch_add(1, Ordering::SeqCst);
        // The callback is still running when the test unsubscribes.
        thread::sleep(Duration::from_micros(200));
    }
    const GONE: u64 = u64::MAX;
    let host = Host::new();
    let engine = host.engine;
    let loud = EchoRequest {
        event: true,
        ..echo("loud", 0)
    };
    let mut received = 0;
    for _ in 0..50 {
        let state = Box::new(AtomicU64::new(0));
        let mut subscription = 0;
        // SAFETY: the state lives until the test has unsubscribed.
        let status = unsafe {
            let context = (&raw const *state).cast_mut().cast();
            let mask = 1 << EventKind::Echoed as u32;
            floe::floe_subscribe(engine, mask, Some(count_event), context, &mut subscription)
        };
        assert_eq!(status, OK);
        for _ in 0..5 {
            host.submit(Method::Echo, &loud);
        }
        // The events arrive around the end of the subscription.
        thread::sleep(Duration::from_micros(300));
        assert_eq!(floe::floe_unsubscribe(engine, subscription), OK);
        received += state.swap(GONE, Ordering::SeqCst);
        for _ in 0..5 {
            assert_eq!(host.end().kind, DONE);
        }
    }
    assert!(received > 0, "no event arrived during a subscription");
}

#[test]
fn progress_precedes_end_and_needs_its_flag() {
    let Some(corpus) = floe_testkit::corpus("curl") else {
        return;
    };
    let mut options = options();
    options.progress_interval_ms = 1;
    let host = Host::with(options, None);
    let store = corpus.store().display().to_string();
    let request = floe_messages::VerifyRequest {
        store: &store,
        ..Default::default()
    };
    // A busy machine may report less, but never anything wrong.
    let is_reported_twice = |_| {
        let mut seen: HashMap<u64, Vec<Received>> = HashMap::new();
        let asks = [
            TestRequest::new(Method::Verify, &request).watched(),
            TestRequest::new(Method::Verify, &request),
        ];
        let ids = asks.map(|ask| ask.submit(host.engine).unwrap());
        let mut ended = 0;
        while ended < 2 {
            let got = host.next();
            let before = seen.entry(got.request).or_default();
            assert!(
                before.iter().all(|it| !it.is_terminal()),
                "a completion followed the terminal one"
            );
            ended += u64::from(got.is_terminal());
            before.push(got);
        }
        let watched = &seen[&ids[0]];
        let progress: Vec<Progress> = watched[..watched.len() - 1]
            .iter()
            .map(Received::message)
            .collect();
        assert!(progress.is_sorted_by_key(|it| it.nar_bytes_done));
        if let Some(it) = progress.last() {
            assert_eq!(it.paths_total, corpus.paths.len() as u64);
            assert!(it.nar_bytes_done <= it.nar_bytes_total);
        }
        assert_eq!(seen[&ids[1]].len(), 1);
        progress.len() >= 2
    };
    assert!(
        (0..20).any(is_reported_twice),
        "progress was never reported twice"
    );
}

#[test]
fn query_is_answered_while_copy_workers_are_busy() {
    unsafe extern "C" fn block(
        context: *mut std::ffi::c_void,
        _: *const std::ffi::c_void,
        _: usize,
    ) -> i32 {
        // SAFETY: the test keeps it until the request has ended.
        let gate = unsafe { &*context.cast::<Mutex<()>>() };
        drop(gate.lock());
        0
    }
    let Some(corpus) = floe_testkit::corpus("jq") else {
        return;
    };
    let mut options = options();
    options.copy_workers = 1;
    let host = Host::with(options, None);
    let store = corpus.store().display().to_string();
    let gate = Mutex::new(());
    let held = gate.lock();
    let nar = floe_messages::NarRequest {
        store: &store,
        path: &corpus.root,
        ..Default::default()
    };
    let context = (&raw const gate).cast_mut().cast();
    let copies = [1, 2].map(|tag| {
        let ask = TestRequest::new(Method::Nar, &nar)
            .into_sink(block, context)
            .tag(tag);
        ask.submit(host.engine).unwrap();
        ask
    });
    let query = PathInfoRequest {
        store: &store,
        path: &corpus.root,
        ..Default::default()
    };
    let got = TestRequest::new(Method::PathInfo, &query)
        .call(host.engine)
        .unwrap();
    let info: floe_messages::PathInfo<'_> = got.reply();
    assert_eq!(info.path, corpus.root);
    assert!(host.got.try_recv().is_err(), "a copy has already ended");
    drop(held);
    for _ in copies {
        assert_eq!(host.end().kind, DONE);
    }
}

#[test]
fn stop_with_bad_server_handle_fails() {
    let host = Host::new();
    let got = host.ask(Method::Stop, &StopRequest { server: 7 });
    assert_eq!(got.message::<Error<'_>>().kind, ErrorKind::BadHandle);
}
