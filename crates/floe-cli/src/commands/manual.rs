//! `floe completions` and `floe man`.
//!
//! Both are made from the definition of the command line at run time, so they always fit the
//! program.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use super::print;
use crate::args::Cli;
use crate::messages;

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    print(String::from_utf8(script)?.trim_end())
}

/// Prints the manual page of floe, or writes the pages of all commands into a directory.
pub(crate) fn man(dir: Option<&Path>) -> anyhow::Result<()> {
    // A page about `floe help` would only repeat the other pages.
    let mut command = Cli::command().disable_help_subcommand(true);
    // Gives each command its full name, such as `floe-install`.
    command.build();
    match dir {
        None => print(page(command)?.trim_end()),
        Some(dir) => fs::create_dir_all(dir)
            .map_err(anyhow::Error::from)
            .and_then(|()| write(&command, dir))
            .with_context(|| messages::manual_pages(dir)),
    }
}

/// Writes the pages of a command and of all its subcommands.
fn write(command: &Command, dir: &Path) -> anyhow::Result<()> {
    let mut below = command.get_subcommands().filter(|it| !it.is_hide_set());
    below.try_for_each(|below| write(below, dir))?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    fs::write(dir.join(format!("{name}.1")), page(command.clone())?)?;
    Ok(())
}

/// Renders a page in ASCII, which every troff reads without a declared encoding.
fn page(command: Command) -> anyhow::Result<String> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    let page = String::from_utf8(page)?;
    let ascii = page.chars().map(|c| match c.is_ascii() {
        true => c.to_string(),
        false => format!("\\[u{:04X}]", u32::from(c)),
    });
    Ok(ascii.collect())
}

/// The name of the program in the shell.
const NAME: &str = "floe";
