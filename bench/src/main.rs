//! `cargo xtask bench`: compares floe with Nix, nginx and other servers on one machine.
//!
//! All benchmarks follow the same rules. The variants take turns, and each figure is the median of
//! several rounds, because the speed of a machine drifts. The result of a run is checked before its
//! time counts. A program that did not run has no figures, only a reason.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool prints to the terminal"
)]

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;
use xtask::workspace;

mod aims;
mod all;
mod args;
mod baseline;
mod before_after;
mod closures;
mod corpus;
mod file_cache;
mod http;
mod libfloe;
mod nix;
mod outcome;
mod programs;
mod results;
mod scale;
mod schedule;
mod serve;
mod server;
mod synthetic_store;
mod tls;

use args::{Arguments, Command};
use closures::Group;
use outcome::Outcome;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    match workspace::root().and_then(|root| run(&root, &command)) {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, command: &Command) -> Result<Outcome> {
    match command {
        Command::Install(args) => closures::run(root, args, Some(Group::Install)),
        Command::Copy(args) => closures::run(root, args, Some(Group::Copy)),
        Command::Push(args) => closures::run(root, args, Some(Group::Push)),
        Command::Network(args) => closures::run(root, args, Some(Group::Network)),
        Command::Upload(args) => closures::run(root, args, Some(Group::Upload)),
        Command::Remote(args) => closures::run(root, args, Some(Group::Remote)),
        Command::Verify(args) => closures::run(root, args, Some(Group::Verify)),
        Command::Collect(args) => closures::run(root, args, Some(Group::Collect)),
        Command::Closures(args) => closures::run(root, args, None),
        Command::Serve(args) => serve::run(root, args),
        Command::ManyConnections(args) => serve::many_connections::run(root, args),
        Command::Scale(args) => scale::run(root, args),
        Command::MakeStore(args) => scale::make_store(args),
        Command::Submit(args) => libfloe::run(root, "submit", args),
        Command::Codec(args) => libfloe::run(root, "codec", args),
        Command::Call(args) => libfloe::run(root, "call", args),
        Command::All(args) => all::run(root, args),
        Command::Baseline { part, inputs } => baseline::run(*part, inputs),
    }
}
