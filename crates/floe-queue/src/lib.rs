//! A bounded queue from any number of threads to one, without a contended lock or counter.
//!
//! 1. *submit*: a thread writes the value into a queue of its own. It writes one slot and stores
//!    one counter, without a lock and without an atomic read-modify-write.
//! 2. *wake*: the thread checks whether the receiver sleeps, and wakes it only then.
//! 3. *take*: the receiver visits all queues, and takes a bounded number of values from each.
//! 4. *park*: the receiver announces that it will sleep, checks all queues once more, and sleeps.
//!    Either the thread sees the announcement or the receiver sees the value. The receiver pays for
//!    this with a barrier across all processors, so that the frequent submits pay nothing.
//! 5. *close*: each queue gets a last number. Values with a smaller number were accepted and will
//!    be taken. The other values are returned to their threads.
//!
//! The values of each thread keep their order. Each queue is bounded: if it is full, the thread
//! gets [`SubmitError::Busy`], and its value is not created. A thread without a queue uses one of a
//! few shards, which are queues with a lock. A thread has no queue while it ends, or if too many
//! threads have one.
//!
//! Not guaranteed: an order between the values of two threads, and a time within which a value is
//! taken.

#![allow(
    clippy::disallowed_types,
    reason = "the model checker and the child of a fork need the locks of the standard library"
)]

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
