//! floe knows each option that the help of Nix's commands names.

use std::collections::BTreeSet;
use std::process::Command;

use floe_testkit::{Nix, nixes, run};

use crate::support::floe;

/// Returns the options that the help of a command names, each with its number of values.
fn options(nix: &Nix, command: &str) -> BTreeSet<(String, usize)> {
    let words = command.split(' ').chain(["--help"]);
    let mut help = nix.command("nix", words);
    let text = run(help
        .env("PAGER", "cat")
        .env("MANPAGER", "cat")
        .env("TERM", "dumb"))
    .expect(0)
    .stdout;
    let mut found = BTreeSet::new();
    for line in plain(&text).lines() {
        // A line names an option, its short form and its values: `· --from store-uri`.
        let Some(option) = line.trim_start().strip_prefix(['·', '•']) else {
            continue;
        };
        let option = option.trim_start();
        if !option.starts_with("--") {
            continue;
        }
        let words: Vec<&str> = option
            .split_whitespace()
            .filter(|word| *word != "/")
            .collect();
        let names = words.iter().take_while(|word| word.starts_with('-'));
        let names: Vec<&str> = names.copied().collect();
        let values = words.len() - names.len();
        found.extend(names.into_iter().map(|name| (name.to_owned(), values)));
    }
    found
}

/// Returns a text without the sequences that make it bold.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => _ = chars.by_ref().find(char::is_ascii_alphabetic),
            // A letter that is printed twice.
            '\u{8}' => _ = plain.pop(),
            c => plain.push(c),
        }
    }
    plain
}

/// Runs a command of floe with an option, and `--help` behind it.
fn with_option(command: &str, option: &str, values: usize) -> Command {
    let mut with = floe(command.split(' '));
    with.arg(option);
    for number in 0..values {
        // Numbers are also texts, and a format has to exist.
        with.arg(match option {
            "--log-format" => "internal-json",
            "--json-format" => "1",
            "--option" if number == 0 => "cores",
            _ => "1",
        });
    }
    with.arg("--help");
    with
}

#[test]
fn every_option_of_nix_is_known() {
    let nixes = nixes();
    for nix in &nixes {
        for (command, own) in [
            ("copy", "nix copy"),
            ("copy", "copy"),
            ("path-info", "nix path-info"),
            ("path-info", "info"),
            ("store verify", "nix store verify"),
            ("store verify", "verify"),
            ("store copy-sigs", "copy-sigs"),
            ("store sign", "sign"),
        ] {
            let options = options(nix, command);
            let has = |name: &str| options.iter().any(|(option, _)| option == name);
            assert!(
                options.len() > 20 && has("--eval-store") && has("-f"),
                "{} {command}: {options:?}",
                nix.version
            );
            for (option, values) in &options {
                let ran = run(&mut with_option(own, option, *values));
                let is_refused = ran.stderr.contains(&format!("cannot use {option}: "));
                let is_known = ran.code == Some(0) || is_refused && ran.code != Some(0);
                assert!(is_known, "floe {own} {option}: {}", ran.stderr);
            }
        }
    }
}

#[test]
fn unknown_option_is_still_an_error() {
    let ran = run(&mut with_option("copy", "--impures", 0));
    ran.expect(2)
        .stderr_contains("unexpected argument '--impures'");
}
