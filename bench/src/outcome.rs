//! How a benchmark ends.

/// Whether a benchmark found what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
}
