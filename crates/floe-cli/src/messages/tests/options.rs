//! The options and settings that messages name exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use floe_config::{Config, Environment, ProcessUser};

use crate::commands::Cli;

/// Adds the long options of a command and its subcommands.
fn add_options(command: &clap::Command, options: &mut BTreeSet<String>) {
    let arguments = command.get_arguments();
    options.extend(arguments.filter_map(|argument| Some(format!("--{}", argument.get_long()?))));
    for subcommand in command.get_subcommands() {
        add_options(subcommand, options);
    }
}

/// Adds the source files below a directory, but for tests and for the options of starman, which
/// clap does not parse, and those of Nix that floe recognizes.
fn add_sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "nix_serve"].contains(&name) {
            add_sources(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs")
            && !["tests", "nix_options", "nix_spellings"].contains(&name)
        {
            files.push(path);
        }
    }
}

/// Returns the words of string literals that begin with two dashes, with the word that follows.
fn named_options(source: &str) -> Vec<(String, String)> {
    let product = source.split("#[cfg(test)]").next().unwrap();
    let lines = product
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    let is_end = |c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-';
    text.match_indices("--")
        .filter(|(at, _)| text[..*at].ends_with([' ', '"', '(', '`', '|']))
        .map(|(at, _)| {
            let rest = &text[at..];
            let (option, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
            let next = after
                .trim_start()
                .split(|c: char| !c.is_ascii_lowercase() && c != '-');
            (
                option.to_owned(),
                next.clone().next().unwrap_or_default().to_owned(),
            )
        })
        .filter(|(option, _)| !option.starts_with("---") && option.len() > 3)
        .collect()
}

#[test]
fn messages_name_only_options_and_settings_that_exist() {
    let mut options = BTreeSet::from(["--help", "--version"].map(str::to_owned));
    add_options(&Cli::command(), &mut options);
    let environment = Environment::new(Vec::new(), ProcessUser::current());
    let mut config = Config::load(&environment, &[]).unwrap();
    let settings: BTreeSet<&str> = config.entries().iter().map(|entry| entry.name).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for name in [
        "cache", "cli", "config", "copy", "remote", "server", "store", "transfer",
    ] {
        add_sources(&crates.join(format!("floe-{name}/src")), &mut files);
    }
    let mut unknown = BTreeSet::new();
    let mut found = 0;
    for file in &files {
        for (option, next) in named_options(&fs::read_to_string(file).unwrap()) {
            found += 1;
            let is_known = options.contains(&option) || FOREIGN.contains(&option.as_str());
            if !is_known {
                unknown.insert(format!("{option} in {}", file.display()));
            }
            // A list that is added to the setting.
            let setting = next.strip_prefix("extra-").unwrap_or(&next);
            if option == "--option" && !setting.is_empty() && !settings.contains(setting) {
                unknown.insert(format!("--option {next} in {}", file.display()));
            }
        }
    }
    assert!(found > 100, "{found} options were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The options of other programs that floe names or calls.
const FOREIGN: [&str; 17] = [
    // mount
    "--bind",
    // Nix
    "--command",
    "--experimental-features",
    "--extra-experimental-features",
    "--no-require-sigs",
    "--print-out-paths",
    "--raw",
    "--repair-path",
    "--serve",
    "--set",
    "--stdio",
    "--verify",
    "--write",
    // aws
    "--format",
    // the program of an example
    "--greeting",
    // starman
    "--group",
    "--user",
];
