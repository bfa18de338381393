//! The `floe` binary: from flags and environment to output and an exit code.

mod args;
mod commands;
mod completions;
mod display;
mod exit;
mod exit_code;
mod links;
mod messages;
mod open_files;
mod options;
mod page;
mod path_lines;
mod times;

use std::process::ExitCode;

use clap_complete::CompleteEnv;

use args::{BenchCommand, LogFormat};
use commands::Command;

fn main() -> ExitCode {
    if let Some(args) = commands::nix_serve::arguments(std::env::args_os()) {
        return exit_code(commands::nix_serve::run(&args));
    }
    // A shell asks for completions by this variable.
    CompleteEnv::with_factory(commands::command_line)
        .var(commands::manual::COMPLETE_VARIABLE)
        .complete();
    let line = commands::nix_copy_closure::command_line(std::env::args_os());
    let line = match commands::parse(line) {
        Ok(line) => line,
        Err(error) => return exit::report_usage(error, std::env::args_os()),
    };
    if line.log_format == LogFormat::Json {
        display::set_json();
    }
    display::set_output(line.output.verbosity(), line.output.color());
    let cli = line.cli;
    let result = match cli.command {
        Command::Install(args) => commands::install::run(args),
        Command::Copy(args) => commands::copy::run(args),
        Command::Push(args) => commands::push::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Shell(args) => commands::run::shell(&args),
        Command::List(args) => commands::manage::list::run(&args),
        Command::Uninstall(args) => commands::manage::uninstall::run(&args),
        Command::Roots(args) => commands::manage::roots::run(&args),
        Command::Profile(command) => commands::manage::profile::run(&command),
        Command::Gc(args) => commands::gc::run(&args),
        Command::Delete(args) => commands::delete::run(&args),
        Command::Optimise(args) => commands::optimise::run(&args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Config(args) => commands::config::run(&args),
        Command::Serve(mut args) => {
            args.log.log_format = args.log.log_format.or(cli.log.log_format);
            commands::serve::run(&args)
        }
        Command::NixCopyClosure(args) => commands::nix_copy_closure::run(&args),
        Command::NixServe { args } => commands::nix_serve::run(&args),
        Command::Key(command) => commands::key::run(command),
        Command::Bench(BenchCommand::Copy(args)) => commands::bench::run(&args),
        Command::Completions { shell } => commands::manual::completions(shell),
        Command::Man { dir } => commands::manual::man(dir.as_deref()),
        Command::Demo { keep } => commands::demo::run(keep.as_deref()),
    };
    exit_code(result.and_then(|()| commands::finish_stdout()))
}

fn exit_code(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
