//! A queue from any number of threads to one, without a hot spot.
//!
//! 1. *submit*: a thread puts a value into a queue of its own: one slot written, one counter
//!    stored, no lock, no instruction that two processors have to agree on;
//! 2. *wake*: it looks whether the receiver sleeps, and only then wakes it;
//! 3. *take*: the receiver goes from queue to queue, and takes a bounded number of values from
//!    each;
//! 4. *parker*: it says that it sleeps, looks at all queues once more, and sleeps. That the word is
//!    seen or the value is seen costs the sleeper a barrier across all processors, so that it costs
//!    the many submits nothing;
//! 5. *close*: every queue gets a last number. What has a smaller one was accepted and will be
//!    taken; what has not is given back.
//!
//! Order is kept for the values of each thread. Each queue is bounded: who is too far ahead is told
//! [`SubmitError::Busy`], and has the value back. A thread that has no queue, because there are
//! many already or it is just ending, uses one of a few queues with a lock.
//!
//! Not guaranteed: an order between the values of two threads, and any time within which a value
//! is taken.

mod barrier;
mod channel;
mod error;
mod parker;
mod shards;
mod spsc;
mod sync;
mod thread_queues;

pub use channel::{Limits, MAX_PER_ROUND, Receiver, Sender, channel};
pub use error::SubmitError;
