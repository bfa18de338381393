//! Eight fixed workloads over the hot paths of floe, for `cargo xtask instructions`.
//!
//! Each run does one workload, once, in one thread, with inputs from a fixed seed. Valgrind counts
//! the instructions of [`run_counted`] alone, so that making the inputs counts nothing.
//!
//! The developer tool builds this program with the profile of the tests. Its counts show that an
//! algorithm does more work than before. They do not show how fast a release is.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool prints to the terminal"
)]

mod database;
mod hashes;
mod inputs;
mod messages;
mod narinfos;
mod nars;
mod worker_protocol;

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

/// The counted part of a workload.
type Work = Box<dyn FnOnce() -> Result<()>>;

/// Makes the inputs of a workload, and returns its counted part. The directory is empty.
type Prepare = fn(&Path) -> Result<Work>;

/// All workloads by their names.
const WORKLOADS: [(&str, Prepare); 8] = [
    ("unpack-nar", nars::unpack),
    ("dump-tree", nars::dump),
    ("decode-nars", nars::decode),
    ("hash", hashes::hash),
    ("narinfos", narinfos::parse_print_verify),
    ("references", database::follow_references),
    ("worker-protocol", worker_protocol::exchange),
    ("libfloe-messages", messages::encode_decode),
];

fn main() -> ExitCode {
    let name = env::args().nth(1);
    let chosen = WORKLOADS.iter().find(|it| Some(it.0) == name.as_deref());
    let Some((name, prepare)) = chosen else {
        // The developer tool reads the names.
        WORKLOADS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    match run(*prepare) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(prepare: Prepare) -> Result<()> {
    let directory = tempfile::tempdir().context("cannot create a directory")?;
    run_counted(prepare(directory.path())?)
}

/// The function whose instructions count, with those of all functions that it calls. The developer
/// tool passes its name to valgrind, so that it must stay a function of its own.
#[inline(never)]
fn run_counted(work: Work) -> Result<()> {
    work()
}
