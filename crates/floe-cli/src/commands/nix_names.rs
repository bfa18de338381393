//! The names of Nix's programs: floe does their work if it is called by one of them.

use std::ffi::OsString;
use std::path::Path;

use super::{nix_collect_garbage, nix_copy_closure, nix_daemon, nix_env, nix_store};

/// The names that are also commands of floe.
const NAMES: [&str; 5] = [
    nix_collect_garbage::NAME,
    nix_copy_closure::NAME,
    nix_daemon::NAME,
    nix_env::NAME,
    nix_store::NAME,
];

/// The names of links to floe.
pub(crate) const LINKED: [&str; 6] = [NIX, NAMES[0], NAMES[1], NAMES[2], NAMES[3], NAMES[4]];

/// The program with subcommands.
const NIX: &str = "nix";

/// Returns the command line of floe. A name of Nix as that of the program is the command.
pub(crate) fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = arguments.into_iter().collect();
    let Some(program) = line.first().and_then(|name| Path::new(name).file_name()) else {
        return line;
    };
    if program == NIX {
        return nix_line(line.split_off(1));
    }
    if let Some(name) = NAMES.into_iter().find(|name| program == *name) {
        // `--help` shows both words.
        line.splice(..1, ["floe".into(), name.into()]);
    }
    line
}

/// Returns the command line of floe for the arguments of `nix`. floe's commands have the names of
/// Nix's, without `store`, and its features need no experiment. Options before the command move
/// behind it.
fn nix_line(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut arguments = without_features(arguments);
    let mut before = 0;
    while let Some(option) = arguments.get(before).and_then(|it| it.to_str())
        && option.starts_with('-')
    {
        before += match option {
            "--option" => 3,
            "--store" | "--log-format" => 2,
            _ => 1,
        };
    }
    let mut line: Vec<OsString> = vec!["floe".into()];
    if before < arguments.len() {
        let options: Vec<OsString> = arguments.drain(..before).collect();
        let is_store_command = |it: &OsString| STORE_COMMANDS.iter().any(|name| it == name);
        if arguments[0] == "store" && arguments.get(1).is_some_and(is_store_command) {
            arguments.remove(0);
        }
        line.push(arguments.remove(0));
        line.extend(options);
    }
    line.extend(arguments);
    line
}

/// Removes the options that enable features, except from the command line of another program.
fn without_features(arguments: Vec<OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if FEATURE_OPTIONS.iter().any(|option| argument == *option) {
            arguments.next();
            continue;
        }
        let is_other = OTHER_PROGRAM.iter().any(|option| argument == *option);
        kept.push(argument);
        if is_other {
            kept.extend(&mut arguments);
        }
    }
    kept
}

/// The words before the command line of another program.
const OTHER_PROGRAM: [&str; 3] = ["--", "-c", "--command"];

/// The options that enable experimental features, with one value each.
const FEATURE_OPTIONS: [&str; 2] = ["--extra-experimental-features", "--experimental-features"];

/// The commands of `nix store` that floe has without this word.
const STORE_COMMANDS: [&str; 5] = ["delete", "gc", "optimise", "sign", "verify"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_selects_the_command() {
        let line = |words: &[&str]| command_line(words.iter().map(OsString::from));
        let expected = ["floe", "nix-copy-closure", "host"];
        assert_eq!(line(&["/bin/nix-copy-closure", "host"]), expected);
        let expected = ["floe", "nix-store", "--serve"];
        assert_eq!(line(&["nix-store", "--serve"]), expected);
        assert_eq!(line(&["floe", "copy"]), ["floe", "copy"]);
        assert!(line(&[]).is_empty());
    }

    #[test]
    fn commands_of_nix_are_those_of_floe() {
        let line = |text: &str| command_line(text.split(' ').map(OsString::from));
        for (nix, floe) in [
            (
                "nix --extra-experimental-features nix-command copy --to x y",
                "floe copy --to x y",
            ),
            ("nix store gc --dry-run", "floe gc --dry-run"),
            (
                "nix -v --option a b store delete x",
                "floe delete -v --option a b x",
            ),
            (
                "nix run x -- --experimental-features y",
                "floe run x -- --experimental-features y",
            ),
            ("nix store ls x", "floe store ls x"),
            ("nix --version", "floe --version"),
        ] {
            assert_eq!(line(nix).join(" ".as_ref()), floe, "{nix}");
        }
    }
}
