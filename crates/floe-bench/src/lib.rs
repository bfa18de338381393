//! Times commands side by side, and says what the figures are worth.
//!
//! 1. *rounds*: in each round every variant does the same work once, in an order that turns by
//!    one from round to round, so that a drift of the machine hits all alike;
//! 2. *run*: before a run its place is made empty, outside the time; after it, its result is
//!    checked, and a variant that failed once has no figures, only a reason;
//! 3. *statistics*: mean, spread, median; Welch's t-test and the ratio of means with its interval;
//! 4. *report*: raw samples as JSON, a table in Markdown, bars as SVG.
//!
//! This crate knows nothing of stores: who uses it says what a result must be.
//!
//! Not guaranteed: that a figure means anything on another machine.

mod error;
pub mod file_system;
pub mod machine;
pub mod perf;
pub mod report;
mod rounds;
mod run;
pub mod statistics;
mod template;

pub use error::BenchError;
pub use report::{Report, Row};
pub use rounds::{Measurement, Repetitions, Variant, rounds};
pub use run::{Invocation, Sample, run};
pub use template::{Placeholders, Template};
