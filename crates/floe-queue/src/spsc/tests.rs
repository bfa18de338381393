//! One producer and one consumer: in one thread, in two threads, and in every order of events under
//! loom.

use super::*;

impl<T> Producer<T> {
    /// Pushes like `submit`: makes room first.
    fn try_push(&mut self, value: T) -> Result<(), T> {
        if !self.has_room() && !self.make_room() {
            return Err(value);
        }
        self.push(value);
        Ok(())
    }
}

#[cfg(not(loom))]
mod threads {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn taken<T>(consumer: &mut Consumer<T>, max: usize) -> Vec<T> {
        let mut values = Vec::new();
        consumer.take(max, |value| values.push(value));
        values
    }

    #[test]
    fn values_arrive_once_in_order_across_chunks() {
        let (mut producer, mut consumer) = spsc(10_000);
        let (mut next, mut expected) = (0, 0);
        for step in [1, 254, 255, 256, 700, 3] {
            for _ in 0..step {
                producer.try_push(next).unwrap();
                next += 1;
            }
            for value in taken(&mut consumer, usize::MAX) {
                assert_eq!(value, expected);
                expected += 1;
            }
            assert_eq!(expected, next);
        }
        assert_eq!(taken(&mut consumer, 1), Vec::<u64>::new());
    }

    #[test]
    fn full_queue_returns_values_until_some_are_taken() {
        let (mut producer, mut consumer) = spsc(3);
        for value in 0..3 {
            producer.try_push(value).unwrap();
        }
        assert_eq!(producer.try_push(3), Err(3));
        assert_eq!(taken(&mut consumer, 2), [0, 1]);
        producer.try_push(3).unwrap();
        producer.try_push(4).unwrap();
        assert_eq!(producer.try_push(5), Err(5));
        assert_eq!(taken(&mut consumer, 9), [2, 3, 4]);
    }

    #[test]
    fn close_takes_earlier_and_returns_later_values() {
        let (mut producer, mut consumer) = spsc(1000);
        // The returned value is then the first one of a chunk.
        let before = CHUNK_LEN as u64;
        for value in 0..before {
            producer.try_push(value).unwrap();
        }
        assert_eq!(producer.settle_when_closed_by(&mut consumer), Ok(()));
        producer.try_push(before).unwrap();
        assert_eq!(producer.confirm_last(), Err(before));
        producer.try_push(before + 1).unwrap();
        assert_eq!(producer.confirm_last(), Err(before + 1));
        assert_eq!(taken(&mut consumer, usize::MAX).len() as u64, before);
        assert!(!consumer.refresh());
    }

    impl<T> Producer<T> {
        fn settle_when_closed_by(&mut self, consumer: &mut Consumer<T>) -> Result<(), T> {
            consumer.close();
            self.confirm_last()
        }
    }

    /// Counts its live instances.
    struct Counted<'a>(&'a AtomicUsize);

    impl<'a> Counted<'a> {
        fn new(alive: &'a AtomicUsize) -> Counted<'a> {
            alive.fetch_add(1, Ordering::Relaxed);
            Counted(alive)
        }
    }

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn values_are_dropped_once_in_any_drop_order() {
        for writer_first in [false, true] {
            let alive = AtomicUsize::new(0);
            let (mut producer, mut consumer) = spsc(10_000);
            for _ in 0..1000 {
                assert!(producer.try_push(Counted::new(&alive)).is_ok());
            }
            consumer.take(300, drop);
            assert_eq!(alive.load(Ordering::Relaxed), 700);
            if writer_first {
                drop((producer, consumer))
            } else {
                drop((consumer, producer))
            }
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn two_threads_lose_nothing_and_keep_order() {
        const COUNT: u64 = if cfg!(miri) { 2000 } else { 1_000_000 };
        let (mut producer, mut consumer) = spsc(4096);
        thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..COUNT {
                    while producer.try_push(value).is_err() {
                        thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < COUNT {
                let count = consumer.take(100, |value| {
                    assert_eq!(value, expected);
                    expected += 1;
                });
                if count == 0 {
                    thread::yield_now();
                }
            }
        });
    }
}

#[cfg(loom)]
mod models {
    use std::time::Duration;

    use loom::thread;

    use super::*;
    use crate::barrier::Barrier;
    use crate::parker::Parker;

    #[test]
    fn values_pass_through_recycled_chunks() {
        loom::model(|| {
            let (mut producer, mut consumer) = spsc(3);
            let writes = thread::spawn(move || {
                let mut accepted = 0;
                for value in 0..4_u64 {
                    match producer.try_push(value) {
                        Ok(()) => accepted += 1,
                        Err(_) => break,
                    }
                }
                accepted
            });
            let mut expected = 0;
            for _ in 0..2 {
                consumer.take(2, |value| {
                    assert_eq!(value, expected);
                    expected += 1;
                });
            }
            let accepted = writes.join().unwrap();
            while consumer.take(9, |value| {
                assert_eq!(value, expected);
                expected += 1;
            }) > 0
            {}
            assert_eq!(accepted, expected);
        });
    }

    #[test]
    fn unseen_value_wakes_sleeper() {
        loom::model(|| {
            let parker = Arc::new(Parker::new(Barrier::new()));
            let (mut producer, mut consumer) = spsc(9);
            let writes = {
                let parker = parker.clone();
                thread::spawn(move || {
                    producer.try_push(7_u64).unwrap();
                    assert!(parker.after_publish());
                })
            };
            // Loom fails a model in which a thread waits forever.
            while consumer.take(1, drop) == 0 {
                parker.park(Duration::MAX, || consumer.refresh());
            }
            writes.join().unwrap();
        });
    }

    #[test]
    fn value_racing_close_is_taken_or_returned() {
        loom::model(|| {
            let parker = Arc::new(Parker::new(Barrier::new()));
            let (mut producer, mut consumer) = spsc(9);
            let writes = {
                let parker = parker.clone();
                thread::spawn(move || {
                    let mut accepted = 0;
                    for value in 0..2_u64 {
                        if parker.is_closed() {
                            break;
                        }
                        producer.try_push(value).unwrap();
                        let is_accepted = parker.after_publish() || producer.confirm_last().is_ok();
                        accepted += u64::from(is_accepted);
                    }
                    accepted
                })
            };
            parker.close();
            consumer.close();
            let mut taken = 0;
            while consumer.take(9, |_| taken += 1) > 0 {}
            assert_eq!(writes.join().unwrap(), taken);
        });
    }
}
