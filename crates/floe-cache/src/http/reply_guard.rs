//! A reply that is always sent: dropping the guard sends an error. The task that should reply may
//! panic in a library, or the network thread may end.

use std::sync::Arc;

use floe_transfer::Error;

/// The duty to reply exactly once.
pub(super) struct ReplyGuard<T, E: From<Dropped>> {
    callback: Option<Callback<T, E>>,
}

/// Receives the reply.
type Callback<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

/// The error of a reply that was never sent.
pub(super) struct Dropped;

impl<T, E: From<Dropped>> ReplyGuard<T, E> {
    /// Makes the guard of a callback.
    pub(super) fn new(callback: impl FnOnce(Result<T, E>) + Send + 'static) -> ReplyGuard<T, E> {
        ReplyGuard {
            callback: Some(Box::new(callback)),
        }
    }

    pub(super) fn send(mut self, answer: Result<T, E>) {
        self.call(answer);
    }

    fn call(&mut self, answer: Result<T, E>) {
        if let Some(callback) = self.callback.take() {
            callback(answer);
        }
    }
}

impl<T, E: From<Dropped>> Drop for ReplyGuard<T, E> {
    fn drop(&mut self) {
        self.call(Err(Dropped.into()));
    }
}

impl From<Dropped> for Error {
    fn from(_: Dropped) -> Error {
        let reason = "the network thread dropped the request, which is a bug in floe unless the \
                      copy was cancelled";
        Error::fetch("(a query to a cache)", reason, false)
    }
}

impl From<Dropped> for Arc<Error> {
    fn from(dropped: Dropped) -> Arc<Error> {
        Arc::new(dropped.into())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn reply_guard_replies_once_even_if_task_panics() {
        let (sender, answers) = mpsc::channel();
        let guard = || {
            let sender = sender.clone();
            ReplyGuard::<u32, Error>::new(move |answer| sender.send(answer).unwrap())
        };
        guard().send(Ok(7));
        assert_eq!(answers.try_recv().unwrap().unwrap(), 7);
        let pending = guard();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _pending = pending;
            panic!("a library has a fault");
        }));
        assert!(panicked.is_err());
        assert!(answers.try_recv().unwrap().is_err());
        assert!(answers.try_recv().is_err(), "a second answer");
    }
}
