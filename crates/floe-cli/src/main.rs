//! The `floe` binary: flags in, the engine's answers out, and an exit code.

mod args;
mod commands;
mod failure;
mod progress;
mod settings;

use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Install(args) => commands::install::run(args),
        Command::Copy(args) => commands::copy::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Key { command } => commands::key::run(command),
        Command::Demo(args) => commands::demo::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
