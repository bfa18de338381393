//! What the developer tool and the benchmarks in `bench/` share: the repository, the commands of
//! the machine, and the corpora.
#![expect(
    clippy::print_stdout,
    reason = "both are command-line tools, and the corpora take minutes"
)]

pub mod corpora;
pub mod system;
pub mod workspace;
