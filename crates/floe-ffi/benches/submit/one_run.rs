//! One run of a queue: several threads submit requests, all of which must arrive.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::variants::Queue;

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// The time from the gate until the last thread has submitted.
    pub(crate) time: Duration,
    /// How often a thread found the queue busy.
    pub(crate) busy: u64,
}

/// Runs one queue. Several threads submit, and the calling thread takes.
pub(crate) fn run<Q: Queue>(threads: usize, each: u64) -> Run {
    let (sender, mut receiver) = Q::new();
    let (ready, go) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let submitters: Vec<_> = (0..threads)
            .map(|thread| {
                let (sender, ready, go) = (sender.clone(), &ready, &go);
                scope.spawn(move || {
                    ready.wait();
                    while !go.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                    let first = thread as u64 * each;
                    let busy: u64 = (first..first + each).map(|it| Q::submit(&sender, it)).sum();
                    (Instant::now(), busy)
                })
            })
            .collect();
        drop(sender);
        ready.wait();
        let begun = Instant::now();
        go.store(true, Ordering::Release);
        let total = threads as u64 * each;
        let (count, sum) = Q::take_all(&mut receiver, total);
        let (mut end, mut busy) = (begun, 0);
        for submitter in submitters {
            let (its_end, its_busy) = submitter.join().expect("a submitter panicked");
            end = end.max(its_end);
            busy += its_busy;
        }
        assert_eq!(count, total, "{}: number of values", Q::NAME);
        assert_eq!(sum, (0..total).sum::<u64>(), "{}: sum of values", Q::NAME);
        assert_eq!(Q::left(&mut receiver), 0, "{}: extra values", Q::NAME);
        Run {
            time: end - begun,
            busy,
        }
    })
}
