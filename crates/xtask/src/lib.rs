//! Code that the developer tool shares with the benchmarks in `bench/`: the repository, the
//! commands of the machine, and the corpora.
#![expect(
    clippy::print_stdout,
    reason = "making a corpus takes minutes, so the terminal names it"
)]

pub mod corpora;
pub mod system;
pub mod workspace;
