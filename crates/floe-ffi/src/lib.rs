//! libfloe: floe inside other programs, behind a C ABI.
//!
//! ```text
//! host threads ─ floe_submit ─ thread queues ─ engine thread ─┬─ answered at once ─┬─ delivery
//!                                                             └─ workers ──────────┘
//! ```
//!
//! 1. *submit*: any thread submits a request. It is accepted or refused, without waiting.
//! 2. *dispatch*: the engine thread takes requests in batches, and answers those that need no work.
//!    The others wait in two work queues, for queries and for copies, so that an install does not
//!    delay a query.
//! 3. *work*: a worker handles one request at a time, and returns its result to the engine thread.
//! 4. *deliver*: each accepted request gets one terminal completion. It goes to a callback on the
//!    engine thread, to a queue that the host drains, or to the thread that waits in `floe_call`.
//! 5. *close*: no request is accepted any more. Requests that were not started are completed as
//!    shut down, and running requests are cancelled.
//!
//! Only `abi` and `callback` handle pointers of the host; all other modules are safe Rust.
//! docs/embedding.md describes the contracts.

mod abi;
mod callback;
mod completion;
mod completion_queue;
mod engine;
mod events;
mod fork;
mod handlers;
mod job_state;
mod limits;
mod request;
mod signals;
mod spin;
mod status;

pub use abi::*;
