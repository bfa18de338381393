//! Whether every dependency may be used: its licence expression against deny.toml's list.
//!
//! Cargo knows the licences of all packages, so no further tool has to be installed for this.
//! deny.toml is in cargo-deny's format, for those who want its other checks too.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Fault;

/// The strings of the array `allow` in the table `[licenses]`.
pub(super) fn allowed(deny_toml: &str) -> BTreeSet<String> {
    let mut in_table = false;
    let mut in_array = false;
    let mut names = BTreeSet::new();
    for line in deny_toml
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
    {
        let mut values = line;
        if in_array {
        } else if line.starts_with('[') {
            in_table = line == "[licenses]";
        } else if let Some((key, rest)) = line.split_once('=') {
            in_array = in_table && key.trim() == "allow";
            values = rest;
        }
        if in_array {
            names.extend(values.split('"').skip(1).step_by(2).map(String::from));
            in_array = !values.contains(']');
        }
    }
    names
}

/// Packages whose licence is not covered. `metadata` is what `cargo metadata` prints.
pub(super) fn faults(metadata: &Value, allowed: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let version = package["version"].as_str().unwrap_or("?");
        let why = match package["license"].as_str() {
            None => "says no licence in its manifest".into(),
            Some(expression) => match permits(expression, allowed) {
                Some(true) => continue,
                Some(false) => format!("is `{expression}`, which deny.toml does not allow"),
                None => format!("has a licence `{expression}` that is no SPDX expression"),
            },
        };
        faults.push(Fault::new(
            "Cargo.lock",
            0,
            "licence",
            &format!("{name} {version} {why}"),
        ));
    }
    faults
}

/// The value of an SPDX expression when the allowed licences are true and all others false.
/// Nothing, when it cannot be read.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> Option<bool> {
    // A slash is how crates wrote OR before the field was SPDX.
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words: Vec<&str> = spaced.split_whitespace().rev().collect();
    let value = either(&mut words, allowed)?;
    words.is_empty().then_some(value)
}

/// `both OR both OR …`; `words` is a stack with the next word on top, here and below.
fn either(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut value = both(words, allowed)?;
    while words.last() == Some(&"OR") {
        words.pop();
        value |= both(words, allowed)?;
    }
    Some(value)
}

/// `single AND single AND …`, which binds closer.
fn both(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut value = single(words, allowed)?;
    while words.last() == Some(&"AND") {
        words.pop();
        value &= single(words, allowed)?;
    }
    Some(value)
}

/// A licence, one `WITH` an exception (which only ever permits more), or parentheses.
fn single(words: &mut Vec<&str>, allowed: &BTreeSet<String>) -> Option<bool> {
    match words.pop()? {
        "(" => {
            let value = either(words, allowed)?;
            (words.pop() == Some(")")).then_some(value)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        licence => {
            if words.last() == Some(&"WITH") {
                words.pop();
                words.pop()?;
            }
            Some(allowed.contains(licence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "ISC"].map(String::from).into()
    }

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("GPL-3.0-only", Some(false)),
            ("MIT OR GPL-3.0-only", Some(true)),
            ("GPL-2.0/MIT", Some(true)),
            ("MIT AND GPL-3.0-only", Some(false)),
            ("Apache-2.0 AND ISC", Some(true)),
            ("GPL-3.0-only OR MIT AND ISC", Some(true)),
            ("(GPL-3.0-only OR MIT) AND ISC", Some(true)),
            ("(GPL-3.0-only OR MIT) AND Zlib", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", Some(true)),
            ("GPL-2.0-only WITH Classpath-exception-2.0", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
            ("MIT ISC", None),
        ] {
            assert_eq!(permits(expression, &some()), expected, "{expression:?}");
        }
    }

    #[test]
    fn the_list_is_that_of_the_licences_table_alone() {
        let text = r#"
            [bans]
            allow = ["x"]
            [licenses]
            version = 2
            allow = [
              "MIT", # "no"
              "ISC",
            ]
            exceptions = ["y"]
            [sources]
            allow = ["z"]
        "#;
        assert_eq!(allowed(text), ["ISC", "MIT"].map(String::from).into());
        assert_eq!(
            allowed("[licenses]\nallow = [\"MIT\"]\n"),
            ["MIT".to_string()].into()
        );
    }

    #[test]
    fn a_package_without_an_allowed_licence_is_named() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "good", "version": "1.0.0", "license": "MIT" },
            { "name": "bad", "version": "2.0.0", "license": "GPL-3.0-only" },
            { "name": "mute", "version": "3.0.0", "license": null },
        ]});
        let messages: Vec<String> = faults(&metadata, &some())
            .into_iter()
            .map(|fault| fault.why)
            .collect();
        assert_eq!(messages.len(), 2);
        assert!(
            messages[0].starts_with("bad 2.0.0 is `GPL-3.0-only`"),
            "{}",
            messages[0]
        );
        assert!(
            messages[1].starts_with("mute 3.0.0 says no licence"),
            "{}",
            messages[1]
        );
    }
}
