//! One memory budget for the large windows of all decoders.
//!
//! Small windows need no permit: every worker may have one. A cache that declares large windows
//! makes its workers wait for each other instead of filling the memory.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The memory that all large windows share.
#[derive(Debug)]
pub struct DecoderBudget {
    total: u64,
    free: Mutex<u64>,
    released: Condvar,
}

/// A part of the budget. Dropping it returns the part.
#[derive(Debug)]
pub struct BudgetPermit<'a> {
    budget: &'a DecoderBudget,
    len: u64,
}

impl DecoderBudget {
    /// Makes a budget of `total` bytes.
    pub fn new(total: u64) -> DecoderBudget {
        DecoderBudget {
            total,
            free: Mutex::new(total),
            released: Condvar::new(),
        }
    }

    /// Returns a permit for a window of `len` bytes if the budget has room. A small window always
    /// gets one. A window that is larger than the budget takes all of it.
    pub fn try_acquire(&self, len: u64) -> Option<BudgetPermit<'_>> {
        let len = self.needed(len);
        let mut free = self.free();
        *free = free.checked_sub(len)?;
        Some(BudgetPermit { budget: self, len })
    }

    /// Returns a permit as [`DecoderBudget::try_acquire`] does, but waits until there is room.
    pub fn acquire(&self, len: u64) -> BudgetPermit<'_> {
        let len = self.needed(len);
        let free = self.released.wait_while(self.free(), |free| *free < len);
        *free.unwrap_or_else(PoisonError::into_inner) -= len;
        BudgetPermit { budget: self, len }
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

impl Drop for BudgetPermit<'_> {
    fn drop(&mut self) {
        *self.budget.free() += self.len;
        self.budget.released.notify_all();
    }
}

/// The largest window that needs no permit, in bytes: that of `xz -6` and `zstd -19`, and so of all
/// caches that Nix writes.
pub(super) const SMALL_WINDOW_LEN: u64 = 8 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn budget_counts_large_windows_only() {
        let budget = DecoderBudget::new(128 * MIB);
        let small: Vec<_> = (0..100).map(|_| budget.acquire(8 * MIB)).collect();
        let large = budget.acquire(100 * MIB);
        assert!(budget.try_acquire(64 * MIB).is_none());
        let rest = budget.try_acquire(28 * MIB).unwrap();
        drop(large);
        assert!(budget.try_acquire(64 * MIB).is_some());
        drop(rest);
        // A window that is larger than the budget takes all of it.
        let all = budget.try_acquire(u64::MAX).unwrap();
        assert!(budget.try_acquire(9 * MIB).is_none());
        drop((all, small));
        assert_eq!(*budget.free(), 128 * MIB);
    }

    #[test]
    fn budget_is_never_exceeded_and_every_thread_acquires() {
        let budget = DecoderBudget::new(128 * MIB);
        let (taken, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..12 {
                let (budget, taken, most) = (&budget, &taken, &most);
                scope.spawn(move || {
                    let len = (16 + 16 * (number % 8)) * MIB;
                    for _ in 0..100 {
                        let permit = budget.acquire(len);
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
