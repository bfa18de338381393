//! One run of a queue: a volume of requests from some threads, all of which have to arrive.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::variants::Queue;

/// What one run has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// From the gate to the return of the last thread.
    pub(crate) time: Duration,
    /// How often a thread was told to try again.
    pub(crate) busy: u64,
}

/// Runs one queue: threads that submit, and the calling thread that takes.
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
        assert_eq!(count, total, "{}: taken and submitted", Q::NAME);
        assert_eq!(sum, (0..total).sum::<u64>(), "{}: what was taken", Q::NAME);
        assert_eq!(Q::left(&mut receiver), 0, "{}: taken twice", Q::NAME);
        Run {
            time: end - begun,
            busy,
        }
    })
}
