//! The one developer tool: `cargo xtask COMMAND`.
//!
//! What continuous integration does, a developer does with the same words. Results go to stdout,
//! so that the last line of a run can be read by a program.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a door: it talks to a person"
)]

use std::env;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use xtask::workspace::{cargo, root, target_directory};

mod bench;
mod check;
mod count;
mod dist;
mod generate;
mod reference_tools;
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
        about: "[--full]  everything that CI runs; --full adds the slow tests",
        run: test::command,
    },
    Subcommand {
        name: "check",
        about: "          the rules of the house that a small program can keep",
        run: check::command,
    },
    Subcommand {
        name: "count",
        about: "          hand-written lines of code, and words that STYLE.md retires",
        run: count::command,
    },
    Subcommand {
        name: "generate",
        about: "[--check] writes what is made from definitions, or says what is not current",
        run: generate::command,
    },
    Subcommand {
        name: "dist",
        about: "          makes target/dist/floe, one static file that needs nothing of a machine",
        run: dist::command,
    },
    Subcommand {
        name: "sanitize",
        about: "[WHICH]   unsafe code, watched by address, thread, miri or all; with nightly",
        run: sanitize::command,
    },
    Subcommand {
        name: "bench",
        about: "[WHAT …]  measures floe beside its peers; without WHAT, says what there is",
        run: bench::command,
    },
];

/// How a command ended, when it could do its work at all.
enum Outcome {
    Good,
    Bad,
    Usage(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let chosen = arguments.first().map(String::as_str);
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
