//! The names of Nix's programs: floe does their work if it is called by one of them.

use std::ffi::OsString;
use std::path::Path;

use super::{nix, nix_collect_garbage, nix_copy_closure, nix_daemon, nix_env, nix_store};

/// The names that are also commands of floe.
const NAMES: [&str; 5] = [
    nix_collect_garbage::NAME,
    nix_copy_closure::NAME,
    nix_daemon::NAME,
    nix_env::NAME,
    nix_store::NAME,
];

/// The names of links to floe.
pub(crate) const LINKED: [&str; 6] = [nix::NAME, NAMES[0], NAMES[1], NAMES[2], NAMES[3], NAMES[4]];

/// Returns the command line of floe. A name of Nix as that of the program is the command.
pub(crate) fn command_line(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut line: Vec<OsString> = arguments.into_iter().collect();
    let Some(program) = line.first().and_then(|name| Path::new(name).file_name()) else {
        return line;
    };
    if program == nix::NAME {
        return nix_line(line.split_off(1));
    }
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    if line.get(1).is_some_and(|word| word == nix::NAME)
        && line.get(2).is_some_and(|word| !is_option(word))
    {
        return nix_line(line.split_off(2));
    }
    if let Some(name) = NAMES.into_iter().find(|name| program == *name) {
        // `--help` shows both words.
        line.splice(..1, ["floe".into(), name.into()]);
    }
    line
}

/// Returns the command line of floe for the arguments of `nix`. Some commands are those of floe
/// itself, and the others belong to `floe nix`, which refuses what it does not have. The features
/// of floe need no experiment. Options before the command move behind it.
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
        let words: Vec<&str> = arguments.iter().map_while(|it| it.to_str()).collect();
        let (len, command) = floe_command(&words);
        arguments.drain(..len);
        line.extend(command.split(' ').map(OsString::from));
        line.extend(options);
    }
    line.extend(arguments);
    line
}

/// Returns how many of the first words are a command of `nix`, and the command of floe.
fn floe_command(words: &[&str]) -> (usize, &'static str) {
    let found = COMMANDS.iter().find(|(nix, _)| {
        let mut given = words.iter();
        nix.split(' ').all(|word| given.next() == Some(&word))
    });
    match found {
        Some((nix, floe)) => (nix.split(' ').count(), floe),
        None => (0, nix::NAME),
    }
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

/// The commands of `nix` that floe has, and those of floe. Older versions have other words for two
/// of them.
const COMMANDS: [(&str, &str); 26] = [
    ("copy", "copy"),
    ("hash convert", "hash --convert"),
    ("hash file", "hash --flat"),
    ("hash path", "hash"),
    ("log", "log"),
    ("run", "run"),
    ("shell", "shell"),
    ("store add", "add"),
    ("store add-file", "add --mode flat"),
    ("store add-path", "add"),
    ("store cat", "cat"),
    ("store copy-sigs", "copy-sigs"),
    ("store delete", "delete"),
    ("store diff-closures", "diff"),
    ("store gc", "gc"),
    ("store ls", "ls"),
    ("store optimise", "optimise"),
    ("store sign", "sign"),
    ("store verify", "verify"),
    ("why-depends", "why-depends"),
    ("path-info", "nix path-info"),
    ("store info", "nix store-info"),
    ("store ping", "nix store-info"),
    ("store dump-path", "nix store-dump-path"),
    ("config show", "nix config-show"),
    ("show-config", "nix config-show"),
];

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
            (
                "nix --store a path-info -r x",
                "floe nix path-info --store a -r x",
            ),
            ("nix store ls -R x", "floe ls -R x"),
            ("nix --store a log x", "floe log --store a x"),
            ("nix hash path --algo md5 x", "floe hash --algo md5 x"),
            ("nix store add-file -n y x", "floe add --mode flat -n y x"),
            ("nix hash file x", "floe hash --flat x"),
            ("nix store ping --json", "floe nix store-info --json"),
            ("nix config show cores", "floe nix config-show cores"),
            ("floe nix store dump-path x", "floe nix store-dump-path x"),
            ("floe nix copy --to x y", "floe copy --to x y"),
            ("floe nix --help", "floe nix --help"),
            ("floe nix", "floe nix"),
            // floe nix refuses them.
            ("nix store repair x", "floe nix store repair x"),
            ("nix profile list", "floe nix profile list"),
            ("nix gc", "floe nix gc"),
            ("nix path-infos x", "floe nix path-infos x"),
            ("nix --version", "floe --version"),
            ("nix", "floe"),
        ] {
            assert_eq!(line(nix).join(" ".as_ref()), floe, "{nix}");
        }
    }
}
