//! The options of Nix's commands that belong to its evaluator, its flakes and its builds.
//!
//! floe evaluates and builds nothing, so most of them have no effect with store paths, in Nix as in
//! floe. Scripts that pass them work unchanged. floe refuses those that would give the command
//! another meaning.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::Cli;
use crate::exit::UsageError;

/// Removes the options without effect from a command line of floe, if Nix has the command too.
///
/// Errors: an option that floe refuses.
pub(crate) fn adapt(line: Vec<OsString>) -> Result<Vec<OsString>, UsageError> {
    let Some(command) = command_position(&line) else {
        return Ok(line);
    };
    let mut words = line.into_iter();
    let mut adapted: Vec<OsString> = words.by_ref().take(command + 1).collect();
    let command = adapted[command].clone();
    while let Some(word) = words.next() {
        if OTHER_PROGRAM.iter().any(|option| word == *option) {
            adapted.push(word);
            adapted.extend(words.by_ref());
            break;
        }
        let text = word.to_str().unwrap_or_default();
        match effect(text).filter(|_| !has_option(&command, text)) {
            None => adapted.push(word),
            // An option of the program.
            Some(Effect::Version) if command == "run" || command == "shell" => adapted.push(word),
            Some(Effect::Version) => return Ok(["floe", text].map(OsString::from).into()),
            Some(Effect::None { values }) => {
                if words.by_ref().take(values).count() < values {
                    return Err(UsageError(format!(
                        "cannot use {text}: its value is missing; Nix takes {values}"
                    )));
                }
            }
            Some(Effect::Floe(options)) => adapted.extend(options.iter().map(OsString::from)),
            Some(Effect::Setting(name)) => {
                adapted.extend(["--option", name].map(OsString::from));
            }
            Some(Effect::Refused(reason)) => {
                return Err(UsageError(format!("cannot use {text}: {reason}")));
            }
        }
    }
    Ok(adapted)
}

/// Returns the position of a command that Nix has too. Options of floe itself may stand before it.
fn command_position(line: &[OsString]) -> Option<usize> {
    let mut position = 1;
    loop {
        let word = line.get(position)?.to_str()?;
        match word {
            "--color" | "--log-format" => position += 2,
            option if option.starts_with('-') => position += 1,
            command => return COMMANDS.contains(&command).then_some(position),
        }
    }
}

/// The effect of an option of Nix.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// Nothing. The option has this many values.
    None { values: usize },
    /// The effect of these options of floe.
    Floe(&'static [&'static str]),
    /// It sets this setting to the value that follows.
    Setting(&'static str),
    /// Shows the version, which is that of floe.
    Version,
    /// It would change what the command does.
    Refused(&'static str),
}

fn effect(option: &str) -> Option<Effect> {
    let found = OPTIONS
        .iter()
        .find(|(names, _)| names.split(' ').any(|name| name == option));
    found.map(|(_, effect)| *effect)
}

/// Whether a command of floe has an option of that name itself.
fn has_option(command: &OsString, option: &str) -> bool {
    let line = Cli::command();
    let found = line.get_subcommands().find(|it| *command == *it.get_name());
    // `nix` has commands of its own.
    let below = found.into_iter().flat_map(clap::Command::get_subcommands);
    let commands = found.into_iter().chain(below);
    let mut options = commands.flat_map(clap::Command::get_arguments);
    options.any(|argument| match option.strip_prefix("--") {
        Some(name) => {
            let aliases = argument.get_all_aliases().unwrap_or_default();
            argument.get_long() == Some(name) || aliases.contains(&name)
        }
        None => argument.get_short() == option.chars().nth(1),
    })
}

const NOTHING: Effect = Effect::None { values: 0 };
const ONE_VALUE: Effect = Effect::None { values: 1 };
const TWO_VALUES: Effect = Effect::None { values: 2 };

/// The options, by their names.
const OPTIONS: &[(&str, Effect)] = &[
    // The evaluator.
    ("--arg --argstr --arg-from-file", TWO_VALUES),
    ("--arg-from-stdin --eval-store", ONE_VALUE),
    ("--include -I", ONE_VALUE),
    ("--impure --debugger --show-trace --no-eval-cache", NOTHING),
    ("--override-flake", TWO_VALUES),
    // Flakes.
    ("--override-input", TWO_VALUES),
    ("--inputs-from --update-input", ONE_VALUE),
    ("--output-lock-file --reference-lock-file", ONE_VALUE),
    (
        "--accept-flake-config --commit-lock-file --recreate-lock-file --no-registries \
         --no-update-lock-file --no-write-lock-file",
        NOTHING,
    ),
    // Builds.
    (
        "--print-build-logs -L --fallback --keep-going --keep-failed",
        NOTHING,
    ),
    ("--max-jobs -j --cores --builders --system", ONE_VALUE),
    // Output. JSON is always on one line.
    ("--pretty --no-pretty", NOTHING),
    ("--debug", Effect::Floe(&["-vv"])),
    // floe asks only the caches and stores that it is told to.
    ("--offline", NOTHING),
    ("--substituters", Effect::Setting("substituters")),
    (
        "--extra-substituters",
        Effect::Setting("extra-substituters"),
    ),
    ("--refresh", NOTHING),
    ("--version", Effect::Version),
    (
        "--substituter -s",
        Effect::Refused("it needs the signatures in the store; try floe copy-sigs before"),
    ),
    (
        "--repair",
        Effect::Refused("it belongs to floe install and floe verify; try one of them"),
    ),
    (
        "--expr --file -f",
        Effect::Refused("floe evaluates no Nix expressions; give a store path"),
    ),
    (
        "--derivation",
        Effect::Refused(
            "floe does not look for the derivation of a path; give the store path of the \
             derivation, which floe info prints as the deriver",
        ),
    ),
    (
        "--no-recursive",
        Effect::Refused("a path is of no use without its references; leave it out"),
    ),
];

/// The commands of floe that Nix has too.
const COMMANDS: [&str; 22] = [
    "add",
    "cat",
    "copy",
    "copy-sigs",
    "delete",
    "diff",
    "dump",
    "gc",
    "hash",
    "info",
    "log",
    "ls",
    "nix",
    "nix-collect-garbage",
    "nix-copy-closure",
    "nix-store",
    "optimise",
    "run",
    "shell",
    "sign",
    "verify",
    "why-depends",
];

/// The words before the command line of another program.
const OTHER_PROGRAM: [&str; 3] = ["--", "-c", "--command"];

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(line: &str) -> Result<String, String> {
        let words = line.split(' ').map(OsString::from).collect();
        match adapt(words) {
            Ok(line) => Ok(line.join(" ".as_ref()).into_string().unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_of_the_evaluator_are_removed_with_their_values() {
        for (line, expected) in [
            (
                "floe copy --arg a b --impure --to x y",
                "floe copy --to x y",
            ),
            ("floe info -I nixpkgs=/x -L --max-jobs 4 y", "floe info y"),
            ("floe copy --debug y", "floe copy -vv y"),
            ("floe copy --refresh y", "floe copy --refresh y"),
            ("floe sign --refresh y", "floe sign y"),
            ("floe verify --repair y", "floe verify --repair y"),
            ("floe sign --version", "floe --version"),
            ("floe shell x --version", "floe shell x --version"),
            (
                "floe copy-sigs --substituter x",
                "floe copy-sigs --substituter x",
            ),
            ("floe info -s x", "floe info -s x"),
            ("floe nix path-info -s x", "floe nix path-info -s x"),
            (
                "floe copy --substituters x y",
                "floe copy --option substituters x y",
            ),
            ("floe run x -- --impure", "floe run x -- --impure"),
            ("floe shell x -c y --impure", "floe shell x -c y --impure"),
            ("floe doctor --offline", "floe doctor --offline"),
            ("floe install --impure", "floe install --impure"),
            (
                "floe -q --color never info -L x",
                "floe -q --color never info x",
            ),
            ("floe -q", "floe -q"),
            ("floe", "floe"),
        ] {
            assert_eq!(adapted(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn options_that_change_the_meaning_are_refused() {
        let refused = adapted("floe copy --no-recursive x").unwrap_err();
        assert!(
            refused.starts_with("cannot use --no-recursive: "),
            "{refused}"
        );
        assert!(adapted("floe info --derivation x").is_err());
        assert!(adapted("floe copy -f x").is_err());
        assert!(adapted("floe copy --arg a").is_err());
        assert!(adapted("floe copy --repair x").is_err());
    }
}
