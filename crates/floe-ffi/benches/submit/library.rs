//! libfloe as a whole: `floe_submit` from many threads, completions by a callback.

use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe::{FloeCompletion, FloeEngineOptions, FloeRequest, Status};
use floe_messages::Method;

use super::one_run::Run;

/// The counters of the callback.
#[derive(Default)]
struct Counts {
    done: AtomicU64,
    other: AtomicU64,
    sum: AtomicU64,
}

unsafe extern "C" fn count(context: *mut c_void, completion: *const FloeCompletion) {
    // SAFETY: `run` passed a pointer to its counters, which live until the engine is closed. The
    // completion is valid during the call.
    let (counts, completion) = unsafe { (&*context.cast::<Counts>(), &*completion) };
    match completion.kind {
        DONE => counts.done.fetch_add(1, Ordering::Relaxed),
        _ => counts.other.fetch_add(1, Ordering::Relaxed),
    };
    counts.sum.fetch_add(completion.tag, Ordering::Relaxed);
}

/// Runs libfloe with a payload of `N - 2` words. In the other variants, the first two words stand
/// for the tag and a pointer, so 2 words are a request without a payload.
pub(crate) fn run<const N: usize>(threads: usize, each: u64) -> Run {
    let counts = Counts::default();
    let options = FloeEngineOptions {
        callback: Some(count),
        context: (&raw const counts).cast_mut().cast(),
        ..zeroed()
    };
    let mut engine = 0;
    // SAFETY: both pointers are valid, and the counters outlive the engine.
    assert_eq!(unsafe { floe::floe_engine_open(&options, &mut engine) }, OK);
    let (ready, go) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let total = threads as u64 * each;
    let run = thread::scope(|scope| {
        let submitters: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let (ready, go) = (&ready, &go);
                scope.spawn(move || {
                    ready.wait();
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    let numbers = thread * each..(thread + 1) * each;
                    let busy: u64 = numbers.map(|tag| submit::<N>(engine, tag)).sum();
                    (Instant::now(), busy)
                })
            })
            .collect();
        ready.wait();
        let begun = Instant::now();
        go.store(true, Ordering::Release);
        let (mut end, mut busy) = (begun, 0);
        for submitter in submitters {
            let (its_end, its_busy) = submitter.join().expect("a submitter panicked");
            end = end.max(its_end);
            busy += its_busy;
        }
        Run {
            time: end - begun,
            busy,
        }
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    while counts.done.load(Ordering::Relaxed) < total {
        assert!(Instant::now() < deadline, "completions are missing");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(floe::floe_engine_free(engine), OK);
    // The engine is freed, so the counters are final.
    assert_eq!(counts.done.into_inner(), total, "completions");
    assert_eq!(counts.other.into_inner(), 0, "failed requests");
    assert_eq!(
        counts.sum.into_inner(),
        (0..total).sum::<u64>(),
        "the sum of tags"
    );
    run
}

fn submit<const N: usize>(engine: u64, tag: u64) -> u64 {
    let payload = [tag; N];
    let request = FloeRequest {
        method: Method::Ping as u32,
        tag,
        payload: payload.as_ptr().cast(),
        payload_len: (N - 2) * size_of::<u64>(),
        ..zeroed_request()
    };
    let mut busy = 0;
    loop {
        // SAFETY: the request and its payload are valid during the call.
        match unsafe { floe::floe_submit(engine, &request, std::ptr::null_mut()) } {
            OK => return busy,
            BUSY => {
                busy += 1;
                thread::yield_now();
            }
            status => panic!("floe_submit gave {status}"),
        }
    }
}

fn zeroed() -> FloeEngineOptions {
    FloeEngineOptions {
        struct_size: size_of::<FloeEngineOptions>(),
        callback: None,
        context: std::ptr::null_mut(),
        codec: 0,
        query_workers: 0,
        copy_workers: 0,
        per_thread: 0,
        in_flight: 0,
        payload_bytes: 0,
        progress_interval_ms: 0,
        slow_after_ms: 0,
    }
}

fn zeroed_request() -> FloeRequest {
    FloeRequest {
        struct_size: size_of::<FloeRequest>(),
        method: 0,
        codec: 0,
        payload: std::ptr::null(),
        payload_len: 0,
        tag: 0,
        deadline_ms: 0,
        flags: 0,
        descriptor: 0,
        sink: None,
        sink_context: std::ptr::null_mut(),
    }
}

const OK: i32 = Status::Ok as i32;
const BUSY: i32 = Status::Busy as i32;
const DONE: u32 = 1;
