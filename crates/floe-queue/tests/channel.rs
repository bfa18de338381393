//! The guarantees for submitters and the receiver, tested with real threads.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_queue::{Limits, Receiver, Sender, SubmitError, channel};

/// The numbers of thread queues to test: the default, and none, so that all threads use the shards.
fn thread_queues() -> [usize; 2] {
    [Limits::default().queues, 0]
}

fn limits(queues: usize) -> Limits {
    Limits {
        queues,
        ..Limits::default()
    }
}

/// More than any test here takes.
const DEADLINE: Duration = Duration::from_secs(300);

fn submit_when_possible<T: Copy + Send + 'static>(sender: &Sender<T>, value: T) -> bool {
    loop {
        match sender.submit(|| value) {
            Ok(()) => return true,
            Err(SubmitError::Busy) => thread::yield_now(),
            Err(SubmitError::Closed(_)) => return false,
        }
    }
}

/// Takes `count` values, and sleeps in between.
fn take_all<T: Send + 'static>(receiver: &mut Receiver<T>, count: u64, mut each: impl FnMut(T)) {
    let (mut taken, begun) = (0, Instant::now());
    while taken < count {
        taken += receiver.take(usize::MAX, &mut each) as u64;
        if taken < count {
            receiver.wait(Duration::from_secs(60), true, || false);
        }
        assert!(begun.elapsed() < DEADLINE, "{taken} of {count}");
    }
    assert_eq!(taken, count);
}

#[test]
fn values_of_each_thread_arrive_once_in_order() {
    const EACH: u64 = if cfg!(miri) { 300 } else { 20_000 };
    let numbers: &[u64] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 7, 40] };
    for queues in thread_queues() {
        for &threads in numbers {
            let (sender, mut receiver) = channel(limits(queues));
            thread::scope(|scope| {
                for thread in 0..threads {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        for number in 0..EACH {
                            assert!(submit_when_possible(&sender, (thread, number)));
                        }
                    });
                }
                let mut next = HashMap::new();
                take_all(&mut receiver, EACH * threads, |(thread, number)| {
                    let next: &mut u64 = next.entry(thread).or_default();
                    assert_eq!(number, *next, "thread {thread}, {queues} queues");
                    *next += 1;
                });
            });
            assert_eq!(receiver.take(usize::MAX, drop), 0);
        }
    }
}

#[test]
fn value_wakes_sleeping_receiver() {
    const COUNT: u64 = if cfg!(miri) { 100 } else { 2000 };
    for queues in thread_queues() {
        let (sender, mut receiver) = channel(limits(queues));
        let (asks, answers) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=COUNT {
                    sender.submit(|| number).unwrap();
                    asks.store(number, Ordering::Relaxed);
                    while answers.load(Ordering::Acquire) < number {
                        thread::yield_now();
                    }
                }
            });
            let begun = Instant::now();
            // A lost wake-up would show as a sleep of a minute.
            take_all(&mut receiver, COUNT, |number| {
                answers.store(number, Ordering::Release)
            });
            assert!(begun.elapsed() < Duration::from_secs(50), "{queues} queues");
        });
    }
}

#[test]
fn full_queue_is_busy_only_for_its_thread() {
    for queues in thread_queues() {
        let (sender, mut receiver) = channel(Limits {
            per_thread: 100,
            queues,
        });
        for number in 0..100 {
            sender.submit(|| number).unwrap();
        }
        assert_eq!(sender.submit(|| 100), Err(SubmitError::Busy));
        let other = sender.clone();
        thread::spawn(move || other.submit(|| 7).unwrap())
            .join()
            .unwrap();
        let mut taken = Vec::new();
        while receiver.take(usize::MAX, |number| taken.push(number)) > 0 {}
        taken.sort_unstable();
        assert_eq!(taken.len(), 101);
        sender.submit(|| 100).unwrap();
    }
}

#[test]
fn threads_beyond_limit_use_shards() {
    let limits = Limits {
        queues: 2,
        ..Limits::default()
    };
    let (sender, mut receiver) = channel(limits);
    let all_there = Barrier::new(10);
    thread::scope(|scope| {
        for thread in 0..10_u64 {
            let (sender, all_there) = (&sender, &all_there);
            scope.spawn(move || {
                sender.submit(|| thread).unwrap();
                // No queue is returned before all threads have asked for one.
                all_there.wait();
                sender.submit(|| thread).unwrap();
            });
        }
    });
    let mut sum = 0;
    take_all(&mut receiver, 20, |number| sum += number);
    assert_eq!(sum, 90);
}

#[test]
fn short_threads_reuse_queues() {
    let threads = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 200,
        (_, true) => 2000,
        _ => 100_000,
    };
    // If a queue were not reused, the limit would send its values to the shards.
    let limits = Limits {
        queues: 1,
        ..Limits::default()
    };
    let (sender, mut receiver) = channel(limits);
    let mut taken = 0;
    for number in 0..threads {
        let sender = sender.clone();
        thread::spawn(move || sender.submit(|| number).unwrap())
            .join()
            .unwrap();
        if number % 100 == 99 {
            taken += receiver.take(usize::MAX, drop);
        }
    }
    taken += receiver.take(usize::MAX, drop);
    assert_eq!(taken, threads);
}

#[test]
fn close_takes_exactly_the_accepted_values() {
    let tries = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 20,
        (_, true) => 500,
        _ => 20_000,
    };
    for queues in thread_queues() {
        let mut met = 0;
        for attempt in 0..tries {
            let (sender, mut receiver) = channel(limits(queues));
            let (ready, before) = (Barrier::new(3), 1 + attempt % 64);
            let mut taken = 0;
            let accepted: u64 = thread::scope(|scope| {
                let submits = |_| {
                    scope.spawn(|| {
                        ready.wait();
                        let mut accepted = 0_u64;
                        while submit_when_possible(&sender, accepted) {
                            accepted += 1;
                        }
                        accepted
                    })
                };
                let submitters: Vec<_> = (0..2).map(submits).collect();
                ready.wait();
                // Closes after this many values. The submitters continue until they are refused.
                while taken < before {
                    taken += receiver.take(usize::MAX, drop) as u64;
                    thread::yield_now();
                }
                receiver.close();
                while receiver.take(usize::MAX, |_| taken += 1) > 0 {}
                submitters.into_iter().map(|it| it.join().unwrap()).sum()
            });
            assert_eq!(receiver.take(usize::MAX, drop), 0);
            assert_eq!(accepted, taken, "{queues} queues, try {attempt}");
            assert_eq!(sender.submit(|| 1), Err(SubmitError::Closed(None)));
            met += u64::from(accepted > before);
        }
        // Otherwise the test has proved nothing.
        assert!(
            met > 0,
            "{queues} queues: no value was accepted during the close"
        );
    }
}

#[test]
fn dropped_receiver_refuses_and_drops_values() {
    for queues in thread_queues() {
        let (sender, receiver) = channel(limits(queues));
        let value = std::sync::Arc::new(());
        sender.submit(|| value.clone()).unwrap();
        drop(receiver);
        // A thread with a cached queue creates its value before it learns of the close.
        let given_back = (queues > 0).then(|| value.clone());
        let refused = sender.submit(|| value.clone());
        assert_eq!(
            refused,
            Err(SubmitError::Closed(given_back)),
            "{queues} queues"
        );
        drop((refused, sender));
        assert_eq!(std::sync::Arc::strong_count(&value), 1, "{queues} queues");
    }
}

#[test]
fn one_thread_uses_many_channels() {
    let mut all: Vec<_> = (0..20_u64).map(|_| channel(Limits::default())).collect();
    for round in 0..10 {
        for (number, (sender, _)) in all.iter().enumerate() {
            sender.submit(|| round * 100 + number).unwrap();
        }
    }
    for (number, (_, receiver)) in all.iter_mut().enumerate() {
        let mut taken = Vec::new();
        receiver.take(usize::MAX, |value| taken.push(value));
        let expected: Vec<usize> = (0..10).map(|round| round * 100 + number).collect();
        assert_eq!(taken, expected);
    }
}

#[test]
fn submit_while_thread_ends_is_not_lost() {
    struct SubmitsAtTheEnd(Sender<u64>);
    impl Drop for SubmitsAtTheEnd {
        fn drop(&mut self) {
            self.0.submit(|| 2).unwrap();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<SubmitsAtTheEnd>> =
            const { std::cell::RefCell::new(None) };
    }
    for first in [true, false] {
        let (sender, mut receiver) = channel(Limits::default());
        let given = sender.clone();
        thread::spawn(move || {
            // Tests both drop orders of the two thread-local values.
            if first {
                given.submit(|| 1).unwrap();
            }
            LAST.set(Some(SubmitsAtTheEnd(given.clone())));
            if !first {
                given.submit(|| 1).unwrap();
            }
        })
        .join()
        .unwrap();
        let mut sum = 0;
        while receiver.take(usize::MAX, |value| sum += value) > 0 {}
        assert_eq!(sum, 3);
    }
}

#[test]
fn value_is_made_only_if_there_is_room() {
    for queues in thread_queues() {
        let (sender, mut receiver) = channel(Limits {
            per_thread: 1,
            queues,
        });
        let mut made = 0;
        let mut submit = || sender.submit(|| made += 1);
        assert_eq!(submit(), Ok(()));
        assert_eq!(submit(), Err(SubmitError::Busy));
        assert_eq!(receiver.take(usize::MAX, drop), 1);
        assert_eq!(submit(), Ok(()));
        receiver.close();
        assert_eq!(submit(), Err(SubmitError::Closed(None)));
        assert_eq!(made, 2, "{queues} queues");
    }
}

#[test]
fn nested_submit_loses_no_value() {
    let limits = Limits {
        per_thread: 2,
        ..Limits::default()
    };
    let (sender, mut receiver) = channel(limits);
    let inside = || {
        sender.submit(|| 1).unwrap();
        2
    };
    sender.submit(inside).unwrap();
    assert_eq!(sender.submit(|| 3), Err(SubmitError::Busy));
    let mut taken = Vec::new();
    receiver.take(usize::MAX, |value| taken.push(value));
    assert_eq!(taken, [1, 2]);
    // The inner submit takes the last room.
    sender.submit(|| 3).unwrap();
    let outer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sender.submit(inside)));
    assert!(outer.is_err());
    receiver.take(usize::MAX, |value| taken.push(value));
    assert_eq!(taken, [1, 2, 3, 1]);
}
