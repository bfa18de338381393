//! The synopses in docs/interface.md are those of the arguments.

use std::fs;

use clap::{Arg, ArgAction, Command};

use crate::commands::command_line;

#[test]
fn interface_document_has_the_synopses_of_all_commands() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/interface.md");
    let document = fs::read_to_string(file).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("no synopses");
    let (found, after) = rest.split_once(END).expect("no end of the synopses");
    let mut command = command_line();
    command.build();
    let synopses = synopses(&command);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(file, format!("{before}{BEGIN}{synopses}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(found, synopses, "write them with UPDATE_EXPECT=1");
}

#[test]
fn headings_of_help_belong_to_their_options_only() {
    let mut command = command_line();
    command.build();
    assert_headings(&command);
}

fn assert_headings(command: &Command) {
    for argument in command.get_arguments() {
        let members: &[&str] = match argument.get_help_heading() {
            Some("Output") => &["quiet", "verbose", "color", "log_format"],
            Some("Configuration") => &["option"],
            Some("Store") => &["root", "store"],
            Some("Trusted signatures") => &[
                "trusted_public_keys",
                "trusted_public_key",
                "extra_trusted_public_keys",
                "no_check_sigs",
            ],
            _ => continue,
        };
        let id = argument.get_id().as_str();
        assert!(members.contains(&id), "{id} of {}", command.get_name());
    }
    command.get_subcommands().for_each(assert_headings);
}

const BEGIN: &str = "```synopsis\n";
const END: &str = "```\n";

/// Returns the synopses of a command, or of those below it.
fn synopses(command: &Command) -> String {
    let below = command.get_subcommands();
    let below = below.filter(|it| it.get_name() != "help" && !it.is_hide_set());
    let below: String = below.map(synopses).collect();
    if command.has_subcommands() && command.is_subcommand_required_set() {
        return below;
    }
    let called = command.get_bin_name().unwrap_or(command.get_name());
    let mut words: Vec<String> = Vec::new();
    let is_optional = |argument: &&Arg| !argument.is_required_set();
    let options = command.get_arguments().filter(|it| !it.is_positional());
    let (optional, required): (Vec<_>, Vec<_>) = options.partition(is_optional);
    for argument in required.into_iter().chain(optional) {
        words.extend(word(argument).filter(|word| words.last() != Some(word)));
    }
    words.extend(command.get_positionals().filter_map(word));
    wrap(called, &words) + &below
}

/// Returns an argument: `[--out-link LINK]`, `PATH...`. Those that all commands have are left out.
fn word(argument: &Arg) -> Option<String> {
    let heading = argument.get_help_heading().unwrap_or_default();
    let is_everywhere = matches!(argument.get_id().as_str(), "help" | "version");
    if argument.is_hide_set() || is_everywhere || heading == "Output" {
        return None;
    }
    if heading == "Trusted signatures" {
        return Some("[TRUST OPTIONS]".into());
    }
    let mut word = String::new();
    if let Some(long) = argument.get_long() {
        word = format!("--{long}");
    }
    if argument.get_num_args().unwrap_or_default().takes_values() {
        for value in argument.get_value_names().unwrap_or_default() {
            let separator = if word.is_empty() { "" } else { " " };
            word = format!("{word}{separator}{value}");
        }
    }
    let dots = match argument.get_action() {
        ArgAction::Append => "...",
        _ => "",
    };
    Some(match argument.is_required_set() {
        _ if argument.is_last_set() => format!("[-- {word}{dots}]"),
        true => format!("{word}{dots}"),
        false => format!("[{word}]{dots}"),
    })
}

/// Puts words into lines below each other.
fn wrap(begin: &str, words: &[String]) -> String {
    let mut lines = vec![begin.to_owned()];
    for word in words {
        let last = lines.last_mut().unwrap();
        if last.len() + 1 + word.len() <= COLUMNS {
            *last = format!("{last} {word}");
        } else {
            lines.push(format!("{INDENT}{word}"));
        }
    }
    lines.join("\n") + "\n"
}

const COLUMNS: usize = 100;
const INDENT: &str = "    ";
