//! Names of derivations, which have a package and a version.

/// Splits the name of a derivation or an output as Nix's `DrvName` does: the version begins after
/// the first dash that no letter follows. The version is empty if there is no such dash.
pub fn name_and_version(name: &str) -> (&str, &str) {
    let dashes = name.match_indices('-');
    let mut versions = dashes.filter(|(at, _)| {
        let after = name[at + 1..].chars().next();
        after.is_some_and(|c| !c.is_ascii_alphabetic())
    });
    let version = versions.next();
    version.map_or((name, ""), |(at, _)| (&name[..at], &name[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_begins_after_a_dash_without_letter() {
        for (name, package, version) in [
            ("jq-1.6", "jq", "1.6"),
            ("jq", "jq", ""),
            ("gcc-wrapper-12.2.0-bin", "gcc-wrapper", "12.2.0-bin"),
            ("libfoo-", "libfoo-", ""),
            ("x-_1", "x", "_1"),
        ] {
            assert_eq!(name_and_version(name), (package, version));
        }
    }
}
