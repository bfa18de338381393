//! Names of derivations, which have a package and a version.

use std::cmp::Ordering;

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

/// Compares two versions as Nix's `builtins.compareVersions` does (`names.cc`): numbers count more
/// than words, nothing more than `pre`, and `2.3a` less than `2.3.1`.
pub fn compare_versions(first: &str, second: &str) -> Ordering {
    let (mut first, mut second) = (first, second);
    while !first.is_empty() || !second.is_empty() {
        let order = compare_components(take_component(&mut first), take_component(&mut second));
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Takes the next number or word of a version.
fn take_component<'a>(version: &mut &'a str) -> &'a str {
    let rest = version.trim_start_matches(is_separator);
    let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
    let is_end = |c: char| is_separator(c) || c.is_ascii_digit() != is_number;
    let (component, rest) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
    *version = rest;
    component
}

fn is_separator(c: char) -> bool {
    c == '.' || c == '-'
}

fn compare_components(first: &str, second: &str) -> Ordering {
    // Nix reads numbers as int, and larger ones as words.
    let number = |component: &str| component.parse::<i32>().ok();
    match (number(first), number(second)) {
        (Some(first), Some(second)) => return first.cmp(&second),
        (Some(_), None) if second.is_empty() => return Ordering::Greater,
        (None, Some(_)) if first.is_empty() => return Ordering::Less,
        _ => {}
    }
    match (first, second) {
        _ if first == second => Ordering::Equal,
        ("pre", _) => Ordering::Less,
        (_, "pre") => Ordering::Greater,
        _ if number(second).is_some() => Ordering::Less,
        _ if number(first).is_some() => Ordering::Greater,
        _ => first.cmp(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_in_nix() {
        for (less, greater) in [
            ("1.0", "2.3"),
            ("2.1", "2.3"),
            ("2.3", "2.3.1"),
            ("2.3a", "2.3.1"),
            ("2.3pre1", "2.3"),
            ("2.3pre3", "2.3pre12"),
            ("2.3a", "2.3c"),
            ("2.3pre1", "2.3c"),
            ("9", "10"),
            ("", "1"),
            ("pre", ""),
        ] {
            assert_eq!(
                compare_versions(less, greater),
                Ordering::Less,
                "{less} {greater}"
            );
            assert_eq!(compare_versions(greater, less), Ordering::Greater);
        }
        for (one, other) in [
            ("1.0", "1-0"),
            ("1..0", "1.0"),
            ("1.0.", "1.0"),
            ("01", "1"),
        ] {
            assert_eq!(
                compare_versions(one, other),
                Ordering::Equal,
                "{one} {other}"
            );
        }
    }

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
