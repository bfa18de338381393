//! A reply that is always sent: dropping the guard sends an error. The task that should reply may
//! panic in a library, or the network threads may end.

use floe_transfer::Error;

use crate::error::CacheError;

/// The duty to reply exactly once.
pub(crate) struct ReplyGuard<T>(Option<Callback<T>>);

/// Receives the result of one operation.
pub(crate) type Callback<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

impl<T> ReplyGuard<T> {
    /// Makes the guard of a callback.
    pub(crate) fn new(callback: Callback<T>) -> ReplyGuard<T> {
        ReplyGuard(Some(callback))
    }

    pub(crate) fn send(mut self, reply: Result<T, Error>) {
        if let Some(callback) = self.0.take() {
            callback(reply);
        }
    }
}

impl<T> Drop for ReplyGuard<T> {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(CacheError::Dropped.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;
    use crate::storage::Found;

    #[test]
    fn reply_guard_replies_once_even_if_task_panics() {
        let (sender, replies) = mpsc::channel();
        let guard = || {
            let sender = sender.clone();
            ReplyGuard::new(Box::new(move |reply| sender.send(reply).unwrap()))
        };
        let missing = Found::missing("it is not there");
        guard().send(Ok(missing.clone()));
        assert_eq!(replies.try_recv().unwrap().unwrap(), missing);
        let pending = guard();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _pending = pending;
            panic!("a library has a fault");
        }));
        assert!(panicked.is_err());
        assert!(replies.try_recv().unwrap().is_err());
        assert!(replies.try_recv().is_err(), "a second reply");
    }
}
