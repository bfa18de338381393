//! What submitters and a receiver can rely on, with real threads.

use std::collections::HashMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_queue::{Limits, Receiver, Sender, SubmitError, channel};

/// How many threads have a queue of their own: as many as by default, and none, so that all share
/// the queues with a lock.
fn thread_queues() -> [usize; 2] {
    [Limits::default().queues, 0]
}

fn limits(queues: usize) -> Limits {
    Limits {
        queues,
        ..Limits::default()
    }
}

/// Nothing here takes this long.
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

/// Takes `count` values, sleeping between.
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
fn the_values_of_each_thread_come_in_order_and_none_is_lost() {
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
fn a_sleeping_receiver_is_woken_by_every_first_value() {
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
            // A wake that was lost would show as a parker of a minute.
            take_all(&mut receiver, COUNT, |number| {
                answers.store(number, Ordering::Release)
            });
            assert!(begun.elapsed() < Duration::from_secs(50), "{queues} queues");
        });
    }
}

#[test]
fn a_thread_that_is_too_far_ahead_is_told_so_and_others_are_not() {
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
fn threads_beyond_the_lanes_use_queues_with_a_lock() {
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
                // So that no queue is given back before all have asked for one.
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
fn short_threads_reuse_the_lanes_of_those_that_ended() {
    let threads = match (cfg!(miri), cfg!(debug_assertions)) {
        (true, _) => 200,
        (_, true) => 2000,
        _ => 100_000,
    };
    // With more queues than this the limit would send them to the queues with a lock.
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
fn what_is_accepted_while_the_receiver_closes_is_taken_and_nothing_else() {
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
                // Closes when it has seen so many; the submitters go on until they are refused.
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
        // Else this has shown nothing.
        assert!(
            met > 0,
            "{queues} queues: nothing was accepted after the close had begun"
        );
    }
}

#[test]
fn a_receiver_that_is_gone_refuses_and_drops_what_was_left() {
    for queues in thread_queues() {
        let (sender, receiver) = channel(limits(queues));
        let value = std::sync::Arc::new(());
        sender.submit(|| value.clone()).unwrap();
        drop(receiver);
        // A thread with a queue at hand has made the value before it learns of the end.
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
fn one_thread_uses_many_ingresses_at_once() {
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
fn a_submit_while_a_thread_ends_is_accepted_or_refused_and_not_lost() {
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
            // Whichever of the two thread-local values is dropped first.
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
fn a_value_is_made_only_where_there_is_room() {
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
fn to_submit_while_a_value_is_made_loses_nothing() {
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
    // Now the inner one takes the last room.
    sender.submit(|| 3).unwrap();
    let outer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| sender.submit(inside)));
    assert!(outer.is_err());
    receiver.take(usize::MAX, |value| taken.push(value));
    assert_eq!(taken, [1, 2, 3, 1]);
}
