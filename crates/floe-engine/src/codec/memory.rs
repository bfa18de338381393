//! One budget for large windows, so that a cache cannot make many decoders remember much at once.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What decoders may remember together beyond small windows.
#[derive(Debug)]
pub(crate) struct Memory {
    total: u64,
    free: Mutex<u64>,
    given_back: Condvar,
}

/// A part of the budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    memory: &'a Memory,
    len: u64,
}

impl Memory {
    /// A budget of so many bytes.
    pub(crate) fn new(total: u64) -> Memory {
        Memory {
            total,
            free: Mutex::new(total),
            given_back: Condvar::new(),
        }
    }

    /// Leave for a window of so many bytes, at once if it is small. A window that is larger than
    /// the whole budget takes all of it.
    pub(crate) fn try_take(&self, len: u64) -> Option<Permit<'_>> {
        let len = self.needed(len);
        let mut free = self.free();
        *free = free.checked_sub(len)?;
        Some(Permit { memory: self, len })
    }

    /// The same, waiting for others to give back what they have.
    pub(crate) fn take(&self, len: u64) -> Permit<'_> {
        let len = self.needed(len);
        let mut free = self.free();
        while *free < len {
            free = self
                .given_back
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= len;
        Permit { memory: self, len }
    }

    fn needed(&self, len: u64) -> u64 {
        match len > SMALL_WINDOW_LEN {
            true => len.min(self.total),
            false => 0,
        }
    }

    fn free(&self) -> MutexGuard<'_, u64> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.memory.free() += self.len;
        self.memory.given_back.notify_all();
    }
}

/// The window of `xz -6` and of `zstd -19`, in bytes, and so of all caches that Nix makes: every
/// worker may have one.
pub(crate) const SMALL_WINDOW_LEN: u64 = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn small_windows_are_free_and_large_ones_come_out_of_one_budget() {
        let memory = Memory::new(128 * MIB);
        let small: Vec<_> = (0..100).map(|_| memory.take(8 * MIB)).collect();
        let large = memory.take(100 * MIB);
        assert!(memory.try_take(64 * MIB).is_none());
        let rest = memory.try_take(28 * MIB).unwrap();
        drop(large);
        assert!(memory.try_take(64 * MIB).is_some());
        drop(rest);
        // More than there is means all that there is.
        let all = memory.try_take(u64::MAX).unwrap();
        assert!(memory.try_take(9 * MIB).is_none());
        drop((all, small));
        assert_eq!(*memory.free(), 128 * MIB);
    }

    #[test]
    fn many_threads_never_have_more_than_the_budget_and_all_get_their_turn() {
        let memory = Memory::new(128 * MIB);
        let (taken, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..12 {
                let (memory, taken, most) = (&memory, &taken, &most);
                scope.spawn(move || {
                    let len = (16 + 16 * (number % 8)) * MIB;
                    for _ in 0..100 {
                        let permit = memory.take(len);
                        most.fetch_max(
                            taken.fetch_add(len, Ordering::SeqCst) + len,
                            Ordering::SeqCst,
                        );
                        thread::yield_now();
                        taken.fetch_sub(len, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        let most = most.into_inner();
        assert!(most <= 128 * MIB && most > 64 * MIB, "{most}");
    }
}
