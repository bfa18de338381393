//! One writer, one reader: by hand, with two threads, and in every order of events under loom.

use super::*;

impl<T> Writer<T> {
    /// As a submit does it.
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

    fn taken<T>(reader: &mut Reader<T>, most: usize) -> Vec<T> {
        let mut values = Vec::new();
        reader.take(most, |value| values.push(value));
        values
    }

    #[test]
    fn values_come_in_order_and_once_over_the_ends_of_chunks() {
        let (mut writer, mut reader) = lane(10_000);
        let (mut next, mut expected) = (0, 0);
        for step in [1, 254, 255, 256, 700, 3] {
            for _ in 0..step {
                writer.try_push(next).unwrap();
                next += 1;
            }
            for value in taken(&mut reader, usize::MAX) {
                assert_eq!(value, expected);
                expected += 1;
            }
            assert_eq!(expected, next);
        }
        assert_eq!(taken(&mut reader, 1), Vec::<u64>::new());
    }

    #[test]
    fn a_full_lane_gives_values_back_until_some_were_taken() {
        let (mut writer, mut reader) = lane(3);
        for value in 0..3 {
            writer.try_push(value).unwrap();
        }
        assert_eq!(writer.try_push(3), Err(3));
        assert_eq!(taken(&mut reader, 2), [0, 1]);
        writer.try_push(3).unwrap();
        writer.try_push(4).unwrap();
        assert_eq!(writer.try_push(5), Err(5));
        assert_eq!(taken(&mut reader, 9), [2, 3, 4]);
    }

    #[test]
    fn what_is_published_before_the_close_is_taken_and_what_comes_after_is_given_back() {
        let (mut writer, mut reader) = lane(1000);
        // The value that is given back is the first one of a chunk.
        let before = CHUNK_LEN as u64;
        for value in 0..before {
            writer.try_push(value).unwrap();
        }
        assert_eq!(writer.settle_when_closed_by(&mut reader), Ok(()));
        writer.try_push(before).unwrap();
        assert_eq!(writer.settle(), Err(before));
        writer.try_push(before + 1).unwrap();
        assert_eq!(writer.settle(), Err(before + 1));
        assert_eq!(taken(&mut reader, usize::MAX).len() as u64, before);
        assert!(!reader.look());
    }

    impl<T> Writer<T> {
        fn settle_when_closed_by(&mut self, reader: &mut Reader<T>) -> Result<(), T> {
            reader.close();
            self.settle()
        }
    }

    /// Counts how many of it are alive.
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
    fn every_value_is_dropped_once_whichever_end_goes_first() {
        for writer_first in [false, true] {
            let alive = AtomicUsize::new(0);
            let (mut writer, mut reader) = lane(10_000);
            for _ in 0..1000 {
                assert!(writer.try_push(Counted::new(&alive)).is_ok());
            }
            reader.take(300, drop);
            assert_eq!(alive.load(Ordering::Relaxed), 700);
            match writer_first {
                true => drop((writer, reader)),
                false => drop((reader, writer)),
            }
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn two_threads_lose_nothing_and_keep_the_order() {
        const COUNT: u64 = if cfg!(miri) { 2000 } else { 1_000_000 };
        let (mut writer, mut reader) = lane(4096);
        thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..COUNT {
                    while writer.try_push(value).is_err() {
                        thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < COUNT {
                let count = reader.take(100, |value| {
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
    use crate::sleep::{After, Sleep};

    #[test]
    fn values_pass_through_chunks_that_go_round() {
        loom::model(|| {
            let (mut writer, mut reader) = lane(3);
            let writes = thread::spawn(move || {
                let mut accepted = 0;
                for value in 0..4_u64 {
                    match writer.try_push(value) {
                        Ok(()) => accepted += 1,
                        Err(_) => break,
                    }
                }
                accepted
            });
            let mut expected = 0;
            for _ in 0..2 {
                reader.take(2, |value| {
                    assert_eq!(value, expected);
                    expected += 1;
                });
            }
            let accepted = writes.join().unwrap();
            while reader.take(9, |value| {
                assert_eq!(value, expected);
                expected += 1;
            }) > 0
            {}
            assert_eq!(accepted, expected);
        });
    }

    #[test]
    fn a_sleeper_is_woken_by_a_value_that_it_did_not_see() {
        loom::model(|| {
            let sleep = Arc::new(Sleep::new(Barrier::new()));
            let (mut writer, mut reader) = lane(9);
            let writes = {
                let sleep = sleep.clone();
                thread::spawn(move || {
                    writer.try_push(7_u64).unwrap();
                    assert_eq!(sleep.published(), After::Accepted);
                })
            };
            // Loom ends a model in which a thread waits for ever.
            while reader.take(1, drop) == 0 {
                sleep.sleep(Duration::MAX, || reader.look());
            }
            writes.join().unwrap();
        });
    }

    #[test]
    fn a_value_that_meets_the_close_is_taken_or_given_back_and_never_both() {
        loom::model(|| {
            let sleep = Arc::new(Sleep::new(Barrier::new()));
            let (mut writer, mut reader) = lane(9);
            let writes = {
                let sleep = sleep.clone();
                thread::spawn(move || {
                    let mut accepted = 0;
                    for value in 0..2_u64 {
                        if sleep.is_closed() {
                            break;
                        }
                        writer.try_push(value).unwrap();
                        let is_accepted = match sleep.published() {
                            After::Accepted => true,
                            After::Closed => writer.settle().is_ok(),
                        };
                        accepted += u64::from(is_accepted);
                    }
                    accepted
                })
            };
            sleep.close();
            reader.close();
            let mut taken = 0;
            while reader.take(9, |_| taken += 1) > 0 {}
            assert_eq!(writes.join().unwrap(), taken);
        });
    }
}
