//! Nix's spellings of commands and options that floe has under other names.

use std::ffi::OsString;

/// Returns what to type instead of a command line that floe does not know.
pub(crate) fn floe_spelling(arguments: &[OsString]) -> Option<&'static str> {
    let words = arguments.iter().skip(1).filter_map(|it| it.to_str());
    let words: Vec<&str> = words
        .skip_while(|word| GLOBAL_WORDS.contains(word))
        .collect();
    let matching = SPELLINGS.iter().find(|(nix, _)| {
        let mut nix = nix.split(' ');
        // Other arguments may stand between the words.
        let Some(first) = nix.next() else {
            return false;
        };
        words.first() == Some(&first) && nix.all(|word| words.contains(&word))
    });
    matching.map(|(_, floe)| *floe)
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

/// The words of Nix, the more special spellings first, and those of floe.
const SPELLINGS: &[(&str, &str)] = &[
    ("path-info", "floe info"),
    ("store gc", "floe gc"),
    ("store verify", "floe verify"),
    ("store repair", "floe verify --repair"),
    ("store delete", "floe delete"),
    ("store optimise", "floe optimise"),
    ("store optimize", "floe optimise"),
    ("store sign", "floe sign"),
    ("store copy-sigs", "floe sign"),
    ("store diff-closures", "floe profile diff-closures"),
    ("store info", "floe config store"),
    ("store ping", "floe config store"),
    ("store", "floe --help"),
    ("copy-sigs", "floe sign"),
    ("sign-paths", "floe sign"),
    ("nix-collect-garbage -d", "floe gc --keep-generations 1"),
    (
        "nix-collect-garbage --delete-old",
        "floe gc --keep-generations 1",
    ),
    ("nix-collect-garbage", "floe gc"),
    ("collect-garbage", "floe gc"),
    ("gc -d", "floe gc --keep-generations 1"),
    ("gc --delete-old", "floe gc --keep-generations 1"),
    ("nix-store -r", "floe install"),
    ("nix-store --realise", "floe install"),
    ("nix-store --realize", "floe install"),
    ("nix-store -q", "floe info"),
    ("nix-store -qR", "floe info --recursive"),
    ("nix-store --query", "floe info"),
    ("nix-store --gc", "floe gc"),
    ("nix-store --delete", "floe delete"),
    ("nix-store --verify", "floe verify"),
    ("nix-store --verify-path", "floe verify PATH"),
    ("nix-store --repair-path", "floe verify --repair PATH"),
    ("nix-store --optimise", "floe optimise"),
    (
        "nix-store --generate-binary-cache-key",
        "floe key generate NAME",
    ),
    ("nix-store", "floe --help"),
    ("realise", "floe install"),
    ("realize", "floe install"),
    ("build", "floe install with the store path"),
    ("query", "floe info --recursive"),
    ("why-depends", "floe roots --why PATH"),
    ("profile install", "floe install --profile LINK PATH"),
    ("profile add", "floe install --profile LINK PATH"),
    ("profile upgrade", "floe install --profile LINK PATH"),
    ("profile remove", "floe uninstall NAME"),
    ("shell -c", "floe shell PATH -- COMMAND"),
    ("shell --command", "floe shell PATH -- COMMAND"),
    ("key generate-secret", "floe key generate NAME"),
    ("key convert-secret-to-public", "floe key public"),
    ("show-config", "floe config"),
    ("remove", "floe uninstall"),
    ("rm", "floe uninstall"),
    ("rollback", "floe profile rollback"),
    ("list-generations", "floe profile list"),
    ("generations", "floe profile list"),
    ("nix-env -i", "floe install --profile LINK PATH"),
    ("nix-env --install", "floe install --profile LINK PATH"),
    ("nix-env -e", "floe uninstall NAME"),
    ("nix-env --uninstall", "floe uninstall NAME"),
    ("nix-env -q", "floe list"),
    ("nix-env --rollback", "floe profile rollback"),
    ("nix-env --list-generations", "floe profile list"),
    ("nix-env", "floe profile --help"),
    ("version", "floe --version"),
    (
        "daemon",
        "floe serve for a binary cache; floe uses the daemon of Nix and has none",
    ),
    (
        "search",
        "floe info with a store path; floe evaluates no Nix expressions",
    ),
    (
        "develop",
        "floe shell with store paths; floe evaluates no Nix expressions",
    ),
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
        assert_eq!(spelling("floe store other"), Some("floe --help"));
        assert_eq!(
            spelling("floe shell P -c jq"),
            Some("floe shell PATH -- COMMAND")
        );
        assert_eq!(spelling("floe gc --unknown"), None);
        assert_eq!(spelling("floe"), None);
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
