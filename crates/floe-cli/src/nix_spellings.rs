//! Nix's spellings of commands and options that floe has under other names.

use std::ffi::OsString;

/// Returns what to type instead of a command line that floe does not know.
pub(crate) fn floe_spelling(arguments: &[OsString]) -> Option<&'static str> {
    let words = arguments.iter().skip(1).filter_map(|it| it.to_str());
    let words: Vec<&str> = words
        .skip_while(|word| GLOBAL_WORDS.contains(word))
        .collect();
    if let Some((&"nix", command)) = words.split_first() {
        // Nix's command may stand alone.
        let command = ["floe"].iter().chain(command).map(OsString::from);
        return Some(floe_spelling(&command.collect::<Vec<_>>()).unwrap_or(HELP));
    }
    let options: Vec<String> = words.iter().flat_map(|word| short_options(word)).collect();
    let has_word = |word: &str| words.contains(&word) || options.iter().any(|it| it == word);
    let matching = SPELLINGS.iter().find(|(nix, _)| {
        let mut nix = nix.split(' ');
        // Other arguments may stand between the words.
        let Some(first) = nix.next() else {
            return false;
        };
        words.first() == Some(&first) && nix.all(has_word)
    });
    matching.map(|(_, floe)| *floe)
}

/// Returns the options that one word joins, as in `-qR`.
fn short_options(word: &str) -> Vec<String> {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    let letters = letters.into_iter().flat_map(str::chars);
    letters.map(|letter| format!("-{letter}")).collect()
}

/// The options that may stand before a command, and their values.
const GLOBAL_WORDS: &[&str] = &[
    "-q",
    "-v",
    "-vv",
    "--quiet",
    "--verbose",
    "--color",
    "auto",
    "always",
    "never",
    "--log-format",
    "json",
    "text",
];

/// For a command that floe does not have.
const HELP: &str = "floe --help, which lists all";

/// A profile of floe differs from one of nix-env, which merges packages.
const INSTALL: &str = "floe install -o LINK PATH for each package, or floe install PATH \
                       --profile, whose generation has that path alone";

/// For a command that evaluates.
const SHELL: &str = "floe shell with names or store paths; floe evaluates no Nix expressions";
const STORE_PATH: &str =
    "floe install with a name or a store path; floe evaluates no Nix expressions";

const CLOSURE_SIZES: &str = "floe info --closure-size, or floe du";

const SIZES: &str = "floe info --size";

const KEEP_ONE: &str = "floe gc --keep-generations 1";

const KEEP_ONE_DRY: &str = "floe gc --keep-generations 1 --dry-run";

const DELETE_GENERATIONS: &str = "floe profile delete-generations";

/// The words of Nix, and of similar programs, the more special spellings first, and those of floe.
const SPELLINGS: &[(&str, &str)] = &[
    ("path-info -S", CLOSURE_SIZES),
    ("path-info --closure-size", CLOSURE_SIZES),
    ("path-info -s", SIZES),
    ("path-info --size", SIZES),
    ("path-info -r", "floe info --recursive"),
    ("path-info --recursive", "floe info --recursive"),
    ("path-info", "floe info"),
    ("store gc", "floe gc"),
    ("store verify", "floe verify"),
    ("store repair", "floe verify --repair"),
    ("store delete", "floe delete"),
    ("store optimise", "floe optimise"),
    ("store optimize", "floe optimise"),
    ("store sign", "floe sign"),
    ("store add-file", "floe add --mode flat"),
    ("store add-path", "floe add"),
    ("store add", "floe add"),
    ("store copy-sigs", "floe copy-sigs"),
    ("store diff-closures", "floe diff"),
    ("store ls", "floe ls"),
    ("store cat", "floe cat"),
    ("store dump-path", "floe dump"),
    ("nar pack", "floe nix-store --dump"),
    ("nar dump-path", "floe nix-store --dump"),
    ("store path-from-hash-part", "floe info HASH"),
    ("store info", "floe config store"),
    ("store ping", "floe config store"),
    ("store", HELP),
    ("nix-hash --flat", "floe hash --flat FILE"),
    (
        "nix-hash --to-base16",
        "floe hash --convert --to base16 HASH",
    ),
    (
        "nix-hash --to-base32",
        "floe hash --convert --to nix32 HASH",
    ),
    (
        "nix-hash --to-base64",
        "floe hash --convert --to base64 HASH",
    ),
    ("nix-hash --to-sri", "floe hash --convert HASH"),
    ("nix-hash", "floe hash FILE"),
    ("hash --base16", "floe hash --format base16"),
    ("hash --base32", "floe hash --format nix32"),
    ("hash --base64", "floe hash --format base64"),
    ("hash --sri", "floe hash, which prints SRI"),
    ("hash to-base16", "floe hash --convert --to base16 HASH"),
    ("hash to-base32", "floe hash --convert --to nix32 HASH"),
    ("hash to-base64", "floe hash --convert --to base64 HASH"),
    ("hash to-sri", "floe hash --convert HASH"),
    ("sign-paths", "floe sign"),
    ("nix-collect-garbage", "floe gc"),
    ("collect-garbage", "floe gc"),
    ("gc -d --dry-run", KEEP_ONE_DRY),
    ("gc -d", KEEP_ONE),
    ("gc --delete-old", KEEP_ONE),
    (
        "nix-store --generate-binary-cache-key",
        "floe key generate NAME",
    ),
    ("realise", "floe install"),
    ("realize", "floe install"),
    ("build", STORE_PATH),
    ("nix-build", STORE_PATH),
    ("query", "floe info --recursive"),
    ("profile install", INSTALL),
    ("profile add", INSTALL),
    ("profile upgrade", INSTALL),
    ("profile remove", "floe uninstall NAME"),
    ("profile switch-generation", "floe profile switch"),
    ("shell -c", "floe shell PATH -- COMMAND"),
    ("shell --command", "floe shell PATH -- COMMAND"),
    ("key generate-secret", "floe key generate NAME"),
    ("key convert-secret-to-public", "floe key public"),
    ("show-config", "floe config"),
    ("remove", "floe uninstall"),
    ("rm", "floe uninstall"),
    ("list-roots", "floe roots"),
    ("rollback", "floe profile rollback"),
    ("switch-generation", "floe profile switch"),
    ("delete-generations", DELETE_GENERATIONS),
    ("list-generations", "floe profile list"),
    ("generations", "floe profile list"),
    ("nix-env -i", INSTALL),
    ("nix-env --install", INSTALL),
    ("nix-env -u", INSTALL),
    ("nix-env --upgrade", INSTALL),
    ("nix-env -e", "floe uninstall NAME"),
    ("nix-env --uninstall", "floe uninstall NAME"),
    ("nix-env -q", "floe list"),
    ("nix-env --query", "floe list"),
    ("nix-env", "floe profile --help"),
    ("nix-shell", SHELL),
    ("develop", SHELL),
    (
        "nix-channel",
        "floe install with a store path; floe has no channels",
    ),
    ("nix-instantiate", STORE_PATH),
    ("eval", STORE_PATH),
    ("flake", STORE_PATH),
    ("version", "floe --version"),
    (
        "daemon",
        "floe nix-daemon, or floe serve for a binary cache",
    ),
    ("upgrade", INSTALL),
    ("update", INSTALL),
    ("pull", "floe install"),
    ("fetch", "floe install"),
    ("download", "floe install"),
    ("upload", "floe push"),
    ("ping", "floe config store"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn spelling(line: &str) -> Option<&'static str> {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        floe_spelling(&words)
    }

    #[test]
    fn words_may_stand_apart_and_special_spellings_win() {
        assert_eq!(
            spelling("floe gc -v -d"),
            Some("floe gc --keep-generations 1")
        );
        assert_eq!(spelling("floe store gc"), Some("floe gc"));
        assert_eq!(spelling("floe -v --color never store gc"), Some("floe gc"));
        assert_eq!(spelling("floe store other"), Some(HELP));
        assert_eq!(spelling("floe path-info -rsSh x"), Some(CLOSURE_SIZES));
        assert_eq!(spelling("floe nix-env -iA hello"), Some(INSTALL));
        assert_eq!(spelling("floe nix-store --print-env x"), None);
        assert_eq!(
            spelling("floe shell P -c jq"),
            Some("floe shell PATH -- COMMAND")
        );
        assert_eq!(spelling("floe gc --unknown"), None);
        assert_eq!(spelling("floe"), None);
        assert_eq!(spelling("floe nix build x"), Some(STORE_PATH));
        assert_eq!(spelling("floe nix profile list"), Some(HELP));
    }

    #[test]
    fn no_spelling_is_hidden_by_an_earlier_one() {
        for (number, (nix, _)) in SPELLINGS.iter().enumerate() {
            let line = format!("floe {nix}");
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            assert_eq!(floe_spelling(&words), Some(SPELLINGS[number].1), "{nix}");
        }
    }
}
