//! Synchronization primitives of the standard library, or of loom under the model checker.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Arc, Condvar, Mutex};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Arc, Condvar, Mutex};

use std::sync::{MutexGuard, PoisonError};

/// Locks a mutex of the standard library. The data under the lock is never left half changed.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Yields while another thread finishes a short operation.
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// The cell of the standard library with the interface of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Places a value on its own cache lines, so that frequent writes do not slow down readers of its
/// neighbours. Two lines, because processors fetch pairs of lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub(crate) T);
