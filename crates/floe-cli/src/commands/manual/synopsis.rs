//! The synopsis of a manual page: each option with the names of its values.

use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::{NAME, name};

/// Returns the section of a command.
pub(super) fn of_command(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for program in programs(command) {
        let program = program.replace('-', r"\-");
        roff.control("SY", [&*program]);
        let options = command.get_arguments().filter(|it| !it.is_positional());
        let (required, optional): (Vec<_>, Vec<_>) =
            options.partition(|option| option.is_required_set());
        let arguments = optional.into_iter().chain(required);
        for argument in arguments.chain(command.get_positionals()) {
            roff.text(argument_parts(argument));
        }
        if command.has_subcommands() {
            // A command that also works without another one has no options before the other one.
            if !command.is_subcommand_required_set() {
                roff.control("YS", []);
                roff.control("SY", [&*program]);
            }
            roff.text([italic("COMMAND"), roman(" ...")]);
        }
        roff.control("YS", []);
    }
    roff
}

/// Returns how a user calls a command.
fn programs(command: &Command) -> Vec<String> {
    let called = command.get_bin_name().unwrap_or(command.get_name());
    match name(command) {
        name if name.starts_with(NAME) => vec![called.to_owned()],
        name => vec![name.to_owned(), called.to_owned()],
    }
}

/// Returns an option or a positional argument: `[-o|--out-link LINK]`, `PATH...`.
fn argument_parts(argument: &Arg) -> Vec<Inline> {
    let mut parts = Vec::new();
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    for name in short.into_iter().chain(long) {
        if !parts.is_empty() {
            parts.push(roman("|"));
        }
        parts.push(bold(name));
    }
    let count = argument.get_num_args().unwrap_or_default();
    if count.takes_values() {
        for value in argument.get_value_names().unwrap_or_default() {
            if !parts.is_empty() {
                parts.push(roman(UNBREAKABLE_SPACE));
            }
            let value = value.replace(' ', &UNBREAKABLE_SPACE.to_string());
            parts.push(italic(value));
        }
    }
    if argument.is_last_set() {
        parts.insert(0, roman("-- "));
    }
    if !argument.is_required_set() {
        parts.insert(0, roman("["));
        parts.push(roman("]"));
    }
    let is_list = matches!(argument.get_action(), ArgAction::Append);
    if is_list {
        parts.push(roman(format!("...{NO_SENTENCE_END}")));
    }
    parts
}

/// Tells roff that the dots before it end no sentence, after which it would write two spaces.
pub(super) const NO_SENTENCE_END: char = '\u{200b}';

/// Keeps an option and its value in one line.
pub(super) const UNBREAKABLE_SPACE: char = '\u{a0}';

#[cfg(test)]
mod tests;
