//! The `floe` binary: from flags and environment to output and an exit code.

mod adding;
mod args;
mod closure_diff;
mod closures;
mod commands;
mod completions;
mod copying;
mod default_profile;
mod display;
mod exit;
mod exit_code;
mod hosting;
mod links;
mod messages;
mod nix_sizes;
mod nix_spellings;
mod open_cache;
mod open_files;
mod options;
mod package_names;
mod page;
mod path_infos;
mod path_lines;
mod path_names;
mod requested_paths;
mod root_links;
mod signals;
mod stdout;
mod store_choice;
mod store_files;
mod times;
mod tree_lines;
mod writable_mount;

use std::process::ExitCode;

use clap_complete::CompleteEnv;

use exit::ExitCodes;

fn main() -> ExitCode {
    if let Some(args) = commands::nix_serve::arguments(std::env::args_os()) {
        return exit_code(commands::nix_serve::run(&args), ExitCodes::Floe);
    }
    // A shell asks for completions by this variable.
    CompleteEnv::with_factory(|| completions::with_values(commands::command_line()))
        .var(commands::manual::COMPLETE_VARIABLE)
        .complete();
    let arguments: Vec<_> = std::env::args_os().collect();
    let codes = ExitCodes::of_line(&arguments);
    let line = commands::nix_names::command_line(arguments);
    let line = match commands::nix_options::adapt(line) {
        Ok(line) => line,
        Err(error) => return exit::report(&error.into(), codes),
    };
    let line = match commands::parse(&line) {
        Ok(line) => line,
        Err(error) => return exit::report_usage(error, line, codes),
    };
    display::set_lines(line.log_format.lines());
    display::set_output(line.output.verbosity(), line.output.color());
    let result = line.cli.run();
    exit_code(result.and_then(|()| stdout::finish_stdout()), codes)
}

fn exit_code(result: anyhow::Result<()>, codes: ExitCodes) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error, codes),
    }
}
