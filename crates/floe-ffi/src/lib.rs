//! libfloe: the engine of floe inside other programs.
//!
//! ```text
//! caller's threads ─ floe_submit ─ ingress ─ engine thread ─┬─ answers at once ─┬─ delivery
//!                                                           └─ workers ─────────┘
//! ```
//!
//! 1. *submit*: any thread hands a request in; it is accepted or refused, and never waits;
//! 2. *dispatch*: the engine thread takes requests in batches. What needs no work it answers. The
//!    rest waits in two lines, of questions and of moves, so that an install does not hold up a
//!    question;
//! 3. *work*: a worker does one request at a time, and hands the outcome back;
//! 4. *deliver*: each accepted request gets one terminal completion, by a callback on the engine
//!    thread, or in a queue that the host drains, or to the thread that waits in `floe_call`;
//! 5. *close*: nothing more is accepted, what has not begun is completed as "shut down", what is at
//!    work is told to end.
//!
//! `abi` and `callback` are the only rooms that handle pointers of a host; everything behind them
//! is safe Rust. docs/embedding.md has the contracts.

mod abi;
mod callback;
mod completion;
mod engine;
mod events;
mod fork;
mod handlers;
mod handles;
mod limits;
mod pool;
mod progress;
mod queue;
mod request;
mod signals;
mod spin;

pub use abi::*;
