//! The developer tool: `cargo xtask COMMAND`.
//!
//! Continuous integration and developers run the same commands. Results go to stdout, so that a
//! program can read the last line of a run.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool prints to the terminal"
)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::workspace::{cargo, in_ci, root, target_directory};

mod bench;
mod check;
mod count;
mod generate;
mod instructions;
mod reference_tools;
mod release;
mod sanitize;
mod test;

struct Subcommand {
    name: &'static str,
    about: &'static str,
    run: fn(&Path, &[String]) -> Result<Outcome>,
}

const COMMANDS: &[Subcommand] = &[
    Subcommand {
        name: "test",
        about: "[--full]  runs everything that CI runs; --full adds the slow tests, --record \
                writes the times to docs/dev/test-times.md",
        run: test::command,
    },
    Subcommand {
        name: "check",
        about: "          checks the rules for sources, documents and dependencies",
        run: check::command,
    },
    Subcommand {
        name: "count",
        about: "          counts hand-written lines of code, and words that STYLE.md retires",
        run: count::command,
    },
    Subcommand {
        name: "generate",
        about: "[--check] writes the generated files, or lists those that are outdated",
        run: generate::command,
    },
    Subcommand {
        name: "dist",
        about: "[--target TRIPLE] [--allow-dirty]  makes the files of a release in target/dist",
        run: release::command,
    },
    Subcommand {
        name: "sanitize",
        about: "[WHICH]   runs unsafe code under address, thread, miri or all; needs nightly",
        run: sanitize::command,
    },
    Subcommand {
        name: "bench",
        about: "[WHAT …]  compares floe with other programs; without WHAT, lists the benchmarks",
        run: bench::command,
    },
    Subcommand {
        name: "instructions",
        about: "[--record [--because REASON]] [WORKLOAD …]  counts the instructions of fixed \
                workloads, and compares or writes bench/instructions.md",
        run: instructions::command,
    },
];

/// The result of a command that could do its work.
enum Outcome {
    Good,
    Bad,
    Usage(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let chosen = arguments.first().map(String::as_str);
    if chosen == Some(test::program::NAME) {
        let error = test::program::run(&arguments[1..]);
        eprintln!("xtask: {error}");
        return ExitCode::FAILURE;
    }
    let Some(command) = COMMANDS.iter().find(|command| Some(command.name) == chosen) else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    match root().and_then(|root| (command.run)(&root, &arguments[1..])) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Ok(Outcome::Usage(problem)) => {
            eprintln!("xtask: {problem}\n{}", usage());
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> String {
    let mut text = String::from("usage:\n");
    for command in COMMANDS {
        text += &format!("  cargo xtask {} {}\n", command.name, command.about);
    }
    text
}
