//! Waits for the replies to many requests.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use floe_transfer::{CANCEL_POLL, Cancel, Error};

/// The replies to requests in flight.
#[derive(Debug)]
pub(crate) struct Replies<T> {
    sender: Sender<Option<T>>,
    receiver: Receiver<Option<T>>,
    pending: usize,
    cancel: Cancel,
}

impl<T: Send + 'static> Replies<T> {
    pub(crate) fn new(cancel: &Cancel) -> Replies<T> {
        let (sender, receiver) = channel();
        Replies {
            sender,
            receiver,
            pending: 0,
            cancel: cancel.clone(),
        }
    }

    /// Returns the callback of a request. `convert` makes the reply out of its result.
    pub(crate) fn callback<R: 'static>(
        &mut self,
        convert: impl FnOnce(R) -> T + Send + 'static,
    ) -> Box<dyn FnOnce(R) + Send> {
        self.pending += 1;
        let reply = ReplySender(Some(self.sender.clone()));
        Box::new(move |result| reply.send(convert(result)))
    }

    /// The number of requests without a reply.
    pub(crate) fn pending(&self) -> usize {
        self.pending
    }

    /// Waits for the next reply. Returns `None` if no request is in flight.
    ///
    /// Errors: [`Error::Cancelled`]; [`Error::Internal`] for a storage that never replies.
    pub(crate) fn next(&mut self) -> Result<Option<T>, Error> {
        if self.pending == 0 {
            return Ok(None);
        }
        let began = Instant::now();
        loop {
            // Replies may come so fast that nothing waits.
            if self.cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            match self.receiver.recv_timeout(CANCEL_POLL) {
                Ok(Some(reply)) => {
                    self.pending -= 1;
                    return Ok(Some(reply));
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() < REPLY_WAIT_MAX => {}
                Ok(None) | Err(_) => return Err(Error::Internal(NO_REPLY)),
            }
        }
    }

    /// Waits for the reply to the only request.
    ///
    /// Errors: as [`Replies::next`].
    pub(crate) fn only(&mut self) -> Result<T, Error> {
        self.next()?.ok_or(Error::Internal(NO_REPLY))
    }
}

/// Sends one reply. A drop without a reply is reported.
struct ReplySender<T>(Option<Sender<Option<T>>>);

impl<T> ReplySender<T> {
    fn send(mut self, reply: T) {
        if let Some(sender) = self.0.take() {
            // The receiver is gone only after an error.
            let _: Result<(), _> = sender.send(Some(reply));
        }
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            // As above.
            let _: Result<(), _> = sender.send(None);
        }
    }
}

const NO_REPLY: &str = "a storage does not reply";

/// Far longer than all attempts of a request take. A storage ends its requests itself; this is the
/// limit for one that does not.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_arrive_in_any_order() {
        let mut replies = Replies::new(&Cancel::default());
        let callbacks: Vec<_> = (0..3)
            .map(|number| replies.callback(move |text: &str| (number, text)))
            .collect();
        assert_eq!(replies.pending(), 3);
        for (callback, text) in callbacks.into_iter().zip(["a", "b", "c"]).rev() {
            callback(text);
        }
        let mut found: Vec<_> = std::iter::from_fn(|| replies.next().unwrap()).collect();
        assert_eq!(found, [(2, "c"), (1, "b"), (0, "a")]);
        found.clear();
        assert_eq!(replies.pending(), 0);
    }

    #[test]
    fn dropped_callback_and_cancellation_end_the_wait() {
        let cancel = Cancel::default();
        let mut replies = Replies::new(&cancel);
        drop(replies.callback(|(): ()| ()));
        let error = replies.only().unwrap_err();
        assert!(matches!(error, Error::Internal(_)), "{error}");
        let mut replies = Replies::new(&cancel);
        let _never_called = replies.callback(|(): ()| ());
        cancel.raise();
        let error = replies.only().unwrap_err();
        assert!(matches!(error, Error::Cancelled), "{error}");
    }
}
