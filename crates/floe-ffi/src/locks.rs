//! Locks of data that is complete after every single change.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. After a panic of another thread under the lock, its data is still complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
