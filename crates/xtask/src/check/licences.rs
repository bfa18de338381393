//! Checks the licence of every dependency against the list in deny.toml.
//!
//! `cargo metadata` knows the licences of all packages, so the check needs no further tool. The
//! file has the format of cargo-deny, which can check more.

use std::collections::BTreeSet;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use super::Fault;

/// Returns the strings of the array `allow` in the table `[licenses]`.
pub(super) fn allowed(deny_toml: &str) -> BTreeSet<String> {
    let table: toml::Table = deny_toml.parse().unwrap_or_default();
    let allow = table.get("licenses").and_then(|table| table.get("allow"));
    let names = allow.and_then(toml::Value::as_array).into_iter().flatten();
    names
        .filter_map(|name| name.as_str().map(String::from))
        .collect()
}

/// Returns a fault for each package whose licence the list does not cover. `metadata` is what
/// `cargo metadata` prints.
pub(super) fn faults(metadata: &Value, allowed: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or("?");
        let version = package["version"].as_str().unwrap_or("?");
        let why = match package["license"].as_str() {
            None => "has no licence in its manifest".into(),
            Some(expression) => match permits(expression, allowed) {
                Ok(true) => continue,
                Ok(false) => format!("has licence `{expression}`, which deny.toml does not allow"),
                Err(error) => format!("has an invalid licence expression: {error}"),
            },
        };
        let why = format!("{name} {version} {why}");
        faults.push(Fault::new("Cargo.lock", 0, "licence", &why));
    }
    faults
}

/// Whether the allowed licences satisfy an SPDX expression. The lax mode accepts `/` for `OR`, as
/// old manifests have it.
fn permits(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, spdx::ParseError> {
    let expression = Expression::parse_mode(expression, ParseMode::LAX)?;
    Ok(expression.evaluate(|requirement| {
        let id = requirement.license.id();
        id.is_some_and(|id| allowed.contains(id.name))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "ISC"].map(String::from).into()
    }

    #[test]
    fn expressions_follow_spdx() {
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
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT)", None),
        ] {
            assert_eq!(
                permits(expression, &some()).ok(),
                expected,
                "{expression:?}"
            );
        }
    }

    #[test]
    fn list_is_the_array_of_the_licences_table() {
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
        assert!(allowed("no toml").is_empty());
    }

    #[test]
    fn package_without_allowed_licence_is_a_fault() {
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
            messages[0].starts_with("bad 2.0.0 has licence `GPL"),
            "{}",
            messages[0]
        );
        assert!(
            messages[1].starts_with("mute 3.0.0 has no licence"),
            "{}",
            messages[1]
        );
    }
}
