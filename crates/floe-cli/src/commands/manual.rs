//! `floe completions` and `floe man`.
//!
//! Both are made from the definition of the command line at run time, so they always fit the
//! program.

mod nix_serve;
pub(crate) mod own_pages;
mod page;
mod synopsis;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use clap_complete::env::Shells;
use clap_mangen::roff::{Roff, bold, roman};
use floe_store::write_file;

use crate::stdout::print;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string());
    let completer = completer.context("there is no completion for this shell")?;
    completer.write_registration(COMPLETE_VARIABLE, NAME, NAME, NAME, &mut script)?;
    print(String::from_utf8(script)?.trim_end())
}

/// Prints the manual page of floe, or writes the pages of all commands into a directory.
pub(crate) fn man(dir: Option<&Path>) -> anyhow::Result<()> {
    let command = command_line();
    match dir {
        None => print(page::render(&command)?.trim_end()),
        Some(dir) => fs::create_dir_all(dir)
            .map_err(anyhow::Error::from)
            .and_then(|()| write(&command, dir))
            .with_context(|| format!("cannot write manual pages into {}", dir.display())),
    }
}

/// Returns the command line, in which each command has the name of its page, such as
/// `floe-install`.
fn command_line() -> Command {
    // A page about `floe help` would only repeat the other pages.
    let mut command = super::command_line().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes the pages of a command and of all its subcommands.
fn write(command: &Command, dir: &Path) -> anyhow::Result<()> {
    let mut below = command.get_subcommands();
    below.try_for_each(|below| write(below, dir))?;
    let file = format!("{}.1", name(command));
    write_file(&dir.join(file), page::render(command)?.as_bytes())?;
    Ok(())
}

/// The variable with which a completion script calls floe.
pub(crate) const COMPLETE_VARIABLE: &str = "FLOE_COMPLETE";

/// The name of the program in the shell.
const NAME: &str = "floe";

/// Adds a term and its description.
fn entry(roff: &mut Roff, term: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(term)]);
    roff.text([roman(text)]);
}

/// Returns the name of a command's page, without its section.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}
