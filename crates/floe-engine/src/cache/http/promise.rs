//! Somebody waits for an answer from the network's thread, and gets one whatever becomes of the
//! task that was to give it: a library that it uses may panic, or the thread end.

use std::sync::Arc;

use crate::error::Error;

/// An answer that is owed.
pub(super) struct Promise<T, E: From<Broken>> {
    give: Option<Give<T, E>>,
}

/// Hands an answer to whoever waits for it.
type Give<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

/// Why an answer is none.
pub(super) struct Broken;

impl<T, E: From<Broken>> Promise<T, E> {
    /// To be kept, once, by a call of `give`.
    pub(super) fn new(give: impl FnOnce(Result<T, E>) + Send + 'static) -> Promise<T, E> {
        Promise {
            give: Some(Box::new(give)),
        }
    }

    pub(super) fn keep(mut self, answer: Result<T, E>) {
        self.give(answer);
    }

    fn give(&mut self, answer: Result<T, E>) {
        if let Some(give) = self.give.take() {
            give(answer);
        }
    }
}

impl<T, E: From<Broken>> Drop for Promise<T, E> {
    fn drop(&mut self) {
        self.give(Err(Broken.into()));
    }
}

impl From<Broken> for Error {
    fn from(_: Broken) -> Error {
        let reason = "the network's thread gave up on it, which is a fault in floe unless the \
                      move was ended";
        Error::fetch("(a question to a cache)", reason, false)
    }
}

impl From<Broken> for Arc<Error> {
    fn from(broken: Broken) -> Arc<Error> {
        Arc::new(broken.into())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn who_waits_gets_one_answer_also_from_a_task_that_panics() {
        let (sender, answers) = mpsc::channel();
        let promise = || {
            let sender = sender.clone();
            Promise::<u32, Error>::new(move |answer| sender.send(answer).unwrap())
        };
        promise().keep(Ok(7));
        assert_eq!(answers.try_recv().unwrap().unwrap(), 7);
        let owed = promise();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _owed = owed;
            panic!("a library has a fault");
        }));
        assert!(panicked.is_err());
        assert!(answers.try_recv().unwrap().is_err());
        assert!(answers.try_recv().is_err(), "a second answer");
    }
}
