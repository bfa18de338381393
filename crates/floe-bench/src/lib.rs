//! Times programs side by side and computes what the figures show.
//!
//! 1. *rounds*: in each round every variant does the same work once. The order rotates from round
//!    to round, so that a drift of the machine hits all variants alike.
//! 2. *run*: before a run its scratch directories are removed, outside the timed part. After it the
//!    result is checked. A variant that fails once has no figures, only a reason.
//! 3. *statistics*: mean, spread and median; Welch's t-test; ratios with their 95 % intervals.
//! 4. *report*: raw samples as JSON, tables in Markdown, charts in SVG.
//!
//! `floe bench` and the comparisons in `bench/` use it. It knows nothing of stores: its user says
//! what a correct result is. Figures are valid for one machine only.

pub mod chart;
mod error;
pub mod file_system;
pub mod machine;
pub mod perf;
mod report;
mod rounds;
mod row;
mod run;
mod sample;
pub mod statistics;
mod table;
mod template;

pub use error::BenchError;
pub use report::Report;
pub use rounds::{Measurement, Repetitions, Variant, rounds, take_turns};
pub use row::{Comparison, Row};
pub use run::{Invocation, remove_tree, run};
pub use sample::{Latency, Metric, Sample, Unit, significant};
pub use table::Table;
pub use template::Template;
