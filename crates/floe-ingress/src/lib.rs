//! A queue from any number of threads to one, without a hot spot.
//!
//! 1. *submit*: a thread puts a value into a lane of its own: one slot written, one counter
//!    stored, no lock, no instruction that two processors have to agree on;
//! 2. *wake*: it looks whether the receiver sleeps, and only then wakes it;
//! 3. *take*: the receiver goes from lane to lane, and takes a bounded number of values from each;
//! 4. *sleep*: it says that it sleeps, looks at all lanes once more, and sleeps. That the word is
//!    seen or the value is seen costs the sleeper a barrier across all processors, so that it costs
//!    the many submits nothing;
//! 5. *close*: every lane gets a last number. What has a smaller one was accepted and will be
//!    taken; what has not is given back.
//!
//! Order is kept for the values of each thread. Each lane is bounded: who is too far ahead is told
//! [`Refused::Busy`], and has the value back. A thread that has no lane, because there are many
//! already or it is just ending, uses one of a few queues with a lock.
//!
//! Not guaranteed: an order between the values of two threads, and any time within which a value
//! is taken.

mod barrier;
mod ingress;
mod lane;
mod lanes;
mod refused;
mod shards;
mod sleep;
mod sync;

pub use ingress::{Ingress, Limits, Mode, PER_ROUND, Receiver};
pub use refused::Refused;
