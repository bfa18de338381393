//! Completions that the host takes on its own thread.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use floe::FloeCompletion;
use floe_messages::{EchoReply, EchoRequest, Empty, EventKind, Lost, Method};
use floe_testkit::run;

use crate::host::*;

/// An engine with a queue, freed when it is dropped.
struct Queue(u64);

impl Drop for Queue {
    fn drop(&mut self) {
        floe::floe_engine_free(self.0);
    }
}

impl Queue {
    /// Takes the waiting completions, up to `most`.
    fn take(&self, most: usize) -> Result<Vec<Received>, i32> {
        let mut completions = vec![empty(); most];
        let mut count = usize::MAX;
        // SAFETY: there are that many elements of this size.
        let status = unsafe {
            let out = completions.as_mut_ptr().cast();
            floe::floe_queue_take(self.0, out, size_of::<FloeCompletion>(), most, &mut count)
        };
        if status != OK {
            assert_eq!(count, 0);
            return Err(status);
        }
        let mut got = Vec::new();
        for completion in &mut completions[..count] {
            got.push(Received::copy(completion));
            // SAFETY: the library wrote it.
            unsafe { floe::floe_completion_release(completion) };
        }
        Ok(got)
    }

    /// Takes `count` completions, and waits for them.
    fn take_all(&self, count: usize) -> Vec<Received> {
        let (mut got, begun) = (Vec::new(), Instant::now());
        while got.len() < count {
            assert!(begun.elapsed() < DEADLINE, "{} of {count}", got.len());
            floe::floe_queue_wait(self.0, 1000);
            got.extend(self.take(64).unwrap());
        }
        got
    }
}

fn echo_of(text: &str, tag: u64) -> TestRequest {
    TestRequest::new(Method::Echo, &echo(text, 0)).tag(tag)
}

#[test]
fn taken_completions_keep_submit_order() {
    let queue = Queue(open(&options()));
    for tag in 0..1000 {
        echo_of(&"text ".repeat(tag as usize % 50), tag)
            .submit(queue.0)
            .unwrap();
    }
    let got = queue.take_all(1000);
    for (tag, got) in got.iter().enumerate() {
        assert_eq!((got.tag, got.kind), (tag as u64, DONE));
        assert_eq!(got.reply::<EchoReply<'_>>().message.len(), tag % 50 * 5);
    }
    assert_eq!(queue.take(1), Ok(Vec::new()));
}

#[test]
fn full_queue_returns_busy_until_taken() {
    let mut options = options();
    options.in_flight = 100;
    options.per_thread = 50;
    let queue = Queue(open(&options));
    let ping = TestRequest::new(Method::Ping, &Empty {});
    let (mut accepted, begun) = (0, Instant::now());
    loop {
        match ping.submit(queue.0) {
            Ok(_) => accepted += 1,
            Err(BUSY) if accepted >= 150 => break,
            Err(BUSY) => thread::yield_now(),
            Err(status) => panic!("{status}"),
        }
        assert!(accepted <= 150, "accepted more than the limits allow");
        assert!(begun.elapsed() < DEADLINE);
    }
    assert_eq!(queue.take_all(150).len(), 150);
    ping.submit(queue.0).unwrap();
    assert_eq!(queue.take_all(1).len(), 1);
}

#[test]
fn take_at_limit_always_resumes_engine() {
    let mut options = options();
    options.in_flight = 2;
    options.per_thread = 4;
    let queue = Queue(open(&options));
    let ping = TestRequest::new(Method::Ping, &Empty {});
    let (mut submitted, mut taken, mut last) = (0, 0, Instant::now());
    let count = match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 100_000,
        None => 20_000,
    };
    while taken < count {
        if submitted < count && ping.submit(queue.0).is_ok() {
            submitted += 1;
        }
        let completions = queue.take(8).unwrap().len();
        taken += completions;
        if completions > 0 {
            last = Instant::now();
        } else {
            thread::yield_now();
        }
        // An engine that missed the take would sleep forever.
        assert!(last.elapsed() < DEADLINE, "{taken} of {submitted}");
    }
}

#[test]
fn descriptor_is_readable_for_completions_and_end() {
    let queue = Queue(open(&options()));
    let mut descriptor = -1;
    // SAFETY: the pointer is valid.
    let status = unsafe { floe::floe_queue_descriptor(queue.0, &mut descriptor) };
    assert_eq!(status, OK);
    let poll = |milliseconds| {
        let mut fd = libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: it is one descriptor, which stays open as long as the engine.
        unsafe { libc::poll(&mut fd, 1, milliseconds) == 1 }
    };
    assert!(!poll(0));
    echo_of("x", 1).submit(queue.0).unwrap();
    assert!(poll(10_000));
    assert_eq!(queue.take(8).unwrap().len(), 1);
    assert!(!poll(0));
    echo_of("y", 2).submit(queue.0).unwrap();
    assert_eq!(floe::floe_engine_close(queue.0), OK);
    assert!(poll(0));
    assert_eq!(queue.take(8).unwrap().len(), 1);
    assert_eq!(queue.take(8), Err(CLOSED));
    assert!(poll(0), "the descriptor stays readable at the end");
    assert_eq!(floe::floe_queue_wait(queue.0, -1), OK);
}

#[test]
fn queue_wait_ends_with_timeout_or_completion() {
    let queue = Queue(open(&options()));
    assert_eq!(
        floe::floe_queue_wait(queue.0, 1),
        floe::Status::TimedOut as i32
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| floe::floe_queue_wait(queue.0, -1));
        // Time for the thread to begin to wait, which it cannot show.
        thread::sleep(Duration::from_millis(20));
        echo_of("x", 1).submit(queue.0).unwrap();
        assert_eq!(waiter.join().unwrap(), OK);
    });
}

#[test]
fn excess_events_are_counted_as_lost() {
    let queue = Queue(open(&options()));
    let mut subscription = 0;
    // SAFETY: the pointer is valid.
    let status = unsafe {
        let mask = 1 << EventKind::Echoed as u32 | 1 << EventKind::Lost as u32;
        floe::floe_subscribe(queue.0, mask, None, std::ptr::null_mut(), &mut subscription)
    };
    assert_eq!(status, OK);
    let loud = EchoRequest {
        event: true,
        ..echo("loud", 0)
    };
    let ask = TestRequest::new(Method::Echo, &loud);
    let submit = |count: u64| {
        for _ in 0..count {
            ask.submit(queue.0).unwrap();
        }
        // When the ping is answered, all earlier requests are answered.
        TestRequest::new(Method::Ping, &Empty {})
            .call(queue.0)
            .unwrap();
    };
    submit(1500);
    let got = queue.take_all(1500 + 1024);
    let events = got.iter().filter(|got| got.kind == EVENT).count();
    assert_eq!((got.len(), events), (2524, 1024));
    submit(1);
    let got = queue.take_all(3);
    let lost = got
        .iter()
        .find(|it| it.kind == EVENT && it.method == EventKind::Lost as u32);
    assert_eq!(lost.unwrap().message::<Lost>().count, 476);
    assert_eq!(floe::floe_unsubscribe(queue.0, subscription), OK);
    submit(10);
    assert!(queue.take_all(10).iter().all(|got| got.kind == DONE));
}

#[test]
fn engine_with_callback_has_no_queue() {
    let host = Host::new();
    assert_eq!(floe::floe_queue_wait(host.engine, 0), INVALID);
    assert!(last_error().contains("callback"), "{}", last_error());
}

/// Runs in a process of its own, because other tests use memory too.
#[test]
fn untaken_completions_are_freed_with_engine() {
    let name = "queues::untaken_completions_are_freed_with_engine";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let ran = run(alone.args([name, "--exact"]).env(ALONE, "1")).expect(0);
        assert!(ran.stdout.contains("1 passed"), "{}", ran.stdout);
        return;
    }
    let before = resident();
    let engine = open(&options());
    std::thread::scope(|scope| {
        let (freed, is_freed) = std::sync::mpsc::channel();
        let (submitted, is_submitted) = std::sync::mpsc::channel();
        // The thread used this engine last, and keeps running.
        scope.spawn(move || {
            for tag in 0..100 {
                let text = "long ".repeat(200 * 1024);
                echo_of(&text, tag).submit(engine).unwrap();
            }
            let _: Received = TestRequest::new(Method::Ping, &Empty {})
                .call(engine)
                .unwrap();
            submitted.send(()).unwrap();
            is_freed.recv().unwrap();
        });
        is_submitted.recv().unwrap();
        let with_replies = resident();
        assert!(
            with_replies > before + REPLIES,
            "the replies use too little memory"
        );
        assert_eq!(floe::floe_engine_free(engine), OK);
        assert!(
            resident() + REPLIES / 2 < with_replies,
            "the replies were not freed"
        );
        freed.send(()).unwrap();
    });
}

/// Tells this program to run one test alone.
const ALONE: &str = "FLOE_TEST_ALONE";

/// Most of the bytes of a hundred long replies.
const REPLIES: u64 = 90 << 20;

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().split(' ').next().unwrap();
    kilobytes.parse::<u64>().unwrap() * 1024
}
