//! The memory budgets for the windows of all decoders.
//!
//! Windows of up to 8 MiB, which is all that Nix writes, share one budget. It has room for the
//! windows of all workers of a copy without `--jobs`. With more workers, those that decode large
//! NARs wait for each other. Larger windows share a second budget, so that a cache that declares
//! them does not fill the memory.
//!
//! A third budget is for the frames that several cores decompress at once. A decoder that finds no
//! room there decompresses its frames one after the other.

use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::WINDOW_LEN_MAX;

/// The memory that all decoders share.
#[derive(Debug)]
pub struct DecoderBudget {
    small: Budget,
    large: Budget,
    frames: Arc<Budget>,
}

/// A part of the budget. Dropping it returns the part.
#[derive(Debug)]
pub struct BudgetPermit<'a> {
    budget: &'a Budget,
    len: u64,
}

/// A part of the budget of frames, which a thread may keep.
#[derive(Debug)]
pub(super) struct FramePermit {
    budget: Arc<Budget>,
    len: u64,
}

impl DecoderBudget {
    /// Makes a budget for the usual windows of `workers` decoders, at least 16, and for larger
    /// windows of 128 MiB together.
    pub fn new(workers: usize) -> DecoderBudget {
        let workers = workers.max(SMALL_WINDOWS_MIN) as u64;
        DecoderBudget {
            small: Budget::new(workers * SMALL_WINDOW_LEN),
            large: Budget::new(WINDOW_LEN_MAX),
            frames: Arc::new(Budget::new(frames_len_max())),
        }
    }

    /// Returns a permit for a frame of `len` bytes, compressed and decompressed, if there is room.
    pub(super) fn try_acquire_frame(&self, len: u64) -> Option<FramePermit> {
        self.frames.try_take(len).then(|| FramePermit {
            budget: self.frames.clone(),
            len,
        })
    }

    /// Returns a permit for a decoder with a window of `window` bytes and an output of `output`
    /// bytes, if the budget has room. A window that is larger than the budget takes all of it.
    pub fn try_acquire(&self, window: u64, output: u64) -> Option<BudgetPermit<'_>> {
        let (budget, len) = self.needed(window, output);
        budget.try_acquire(len)
    }

    /// Returns a permit as [`DecoderBudget::try_acquire`] does, but waits until there is room.
    pub fn acquire(&self, window: u64, output: u64) -> BudgetPermit<'_> {
        let (budget, len) = self.needed(window, output);
        budget.acquire(len)
    }

    /// Returns the budget of a window, and its share. The decoder uses no more of a window than its
    /// output fills.
    fn needed(&self, window: u64, output: u64) -> (&Budget, u64) {
        if window > SMALL_WINDOW_LEN {
            (&self.large, window.min(self.large.total))
        } else {
            (&self.small, window.min(output))
        }
    }
}

/// A number of bytes that threads divide among them.
#[derive(Debug)]
struct Budget {
    total: u64,
    free: Mutex<u64>,
    released: Condvar,
}

impl Budget {
    fn new(total: u64) -> Budget {
        Budget {
            total,
            free: Mutex::new(total),
            released: Condvar::new(),
        }
    }

    fn try_acquire(&self, len: u64) -> Option<BudgetPermit<'_>> {
        self.try_take(len)
            .then(|| BudgetPermit { budget: self, len })
    }

    fn try_take(&self, len: u64) -> bool {
        let mut free = self.free.lock();
        let rest = free.checked_sub(len);
        *free = rest.unwrap_or(*free);
        rest.is_some()
    }

    fn give_back(&self, len: u64) {
        *self.free.lock() += len;
        self.released.notify_all();
    }

    fn acquire(&self, len: u64) -> BudgetPermit<'_> {
        let mut free = self.free.lock();
        self.released.wait_while(&mut free, |free| *free < len);
        *free -= len;
        BudgetPermit { budget: self, len }
    }
}

impl Drop for BudgetPermit<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.len);
    }
}

impl FramePermit {
    /// The length of the part, in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Gives back all but `len` bytes.
    pub(super) fn shrink(&mut self, len: u64) {
        let unused = self.len.saturating_sub(len);
        self.budget.give_back(unused);
        self.len -= unused;
    }
}

#[cfg(test)]
impl DecoderBudget {
    pub(super) fn free_for_frames(&self) -> u64 {
        *self.frames.free.lock()
    }
}

impl Drop for FramePermit {
    fn drop(&mut self) {
        self.budget.give_back(self.len);
    }
}

/// The memory for frames on this machine: 64 MiB and 24 MiB for each core, at most 512 MiB.
fn frames_len_max() -> u64 {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    (64 * MIB + cores * 24 * MIB).min(512 * MIB)
}

const MIB: u64 = 1024 * 1024;

/// The largest window that needs no permit of the large budget, in bytes: that of `xz -6` and
/// `zstd -19`, and so of all caches that Nix writes.
pub(super) const SMALL_WINDOW_LEN: u64 = 8 * 1024 * 1024;

/// The smallest number of windows in the small budget: 128 MiB, as for larger windows.
const SMALL_WINDOWS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    const MANY: u64 = u64::MAX;

    #[test]
    fn budgets_of_small_and_large_windows_are_independent() {
        let budget = DecoderBudget::new(20);
        let small: Vec<_> = (0..20).map(|_| budget.acquire(8 * MIB, MANY)).collect();
        assert!(budget.try_acquire(8 * MIB, MANY).is_none());
        let large = budget.acquire(100 * MIB, MANY);
        assert!(budget.try_acquire(64 * MIB, MANY).is_none());
        let rest = budget.try_acquire(28 * MIB, MANY).unwrap();
        drop(large);
        assert!(budget.try_acquire(64 * MIB, MANY).is_some());
        drop(rest);
        // A window that is larger than the budget takes all of it.
        let all = budget.try_acquire(u64::MAX, MANY).unwrap();
        assert!(budget.try_acquire(9 * MIB, MANY).is_none());
        drop((all, small));
        assert_eq!(*budget.large.free.lock(), 128 * MIB);
        assert_eq!(*budget.small.free.lock(), 160 * MIB);
    }

    #[test]
    fn budget_of_small_windows_counts_used_part() {
        let budget = DecoderBudget::new(1);
        let short: Vec<_> = (0..128).map(|_| budget.acquire(8 * MIB, MIB)).collect();
        assert!(budget.try_acquire(8 * MIB, 1).is_none());
        drop(short);
        assert!(budget.try_acquire(8 * MIB, MANY).is_some());
    }

    #[test]
    fn budget_is_never_exceeded_and_every_thread_acquires() {
        let budget = DecoderBudget::new(1);
        let (taken, most) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 0..12 {
                let (budget, taken, most) = (&budget, &taken, &most);
                scope.spawn(move || {
                    let len = (16 + 16 * (number % 8)) * MIB;
                    for _ in 0..100 {
                        let permit = budget.acquire(len, MANY);
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
