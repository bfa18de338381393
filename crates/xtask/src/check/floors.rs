//! Rules about who may depend on whom.
//!
//! They are read from `cargo metadata`, so that features, renames and tables for one platform
//! are seen as cargo sees them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Fault;

/// Floor 0: values and grammars. Whoever adds a name here has looked that the crate touches no
/// file, socket, clock or thread.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "floe-format",
        &[
            "data-encoding",
            "floe-hash",
            "memchr",
            "ring",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
    (
        "floe-hash",
        &["blake3", "md-5", "ring", "sha1", "sha2", "thiserror"],
    ),
    // It is nothing but threads; what it must not know is what they carry.
    ("floe-queue", &["libc", "loom"]),
    ("floe-messages", &["thiserror"]),
];

/// What must not be in a crate's build at all, not even through others.
const UNREACHABLE: &[(&str, &[&str], &str)] = &[
    (
        "floe-store",
        &[
            "tokio",
            "async-std",
            "smol",
            "hyper",
            "reqwest",
            "ureq",
            "rustls",
            "floe-engine",
        ],
        "the store knows no network and no async runtime",
    ),
    (
        "floe-server",
        &["floe-engine", "floe-config"],
        "the server never imports the engine, nor reads configuration",
    ),
    (
        "floe-engine",
        &["floe-config"],
        "the engine reads no configuration: the doors pass options in",
    ),
    (
        "floe-config",
        &["clap", "indicatif", "anyhow"],
        "a configuration is read for libfloe as well as for the command line",
    ),
];

/// Crates that other crates use only in tests.
const TEST_ONLY: &[&str] = &["floe-testkit"];

const HASH_LIBRARIES: &[&str] = &["sha2", "sha1", "md-5", "md5", "blake3", "sha1_smol"];
const MAPPING_LIBRARIES: &[&str] = &["memmap", "memmap2", "mmap-rs", "fmmap"];

/// A dependency as one manifest of the workspace names it.
struct Named<'a> {
    manifest: String,
    package: &'a str,
    dependency: &'a str,
    for_tests: bool,
}

/// `metadata` is what `cargo metadata` prints.
pub(super) fn faults(metadata: &Value) -> Vec<Fault> {
    let named = named(metadata);
    let mut faults = Vec::new();
    for it in &named {
        let mut fault = |rule, why: &str| {
            let why = format!("dependency `{}`: {why}", it.dependency);
            faults.push(Fault::new(&it.manifest, 0, rule, &why));
        };
        let floor = ALLOWED.iter().find(|(package, _)| *package == it.package);
        if floor.is_some_and(|(_, list)| !it.for_tests && !list.contains(&it.dependency)) {
            fault(
                "floors",
                "not on the list of floor 0 (crates/xtask/src/check/floors.rs)",
            );
        }
        if TEST_ONLY.contains(&it.dependency) && !it.for_tests {
            fault("floors", "only tests use it, as a dev-dependency");
        }
        if it.package != "floe-hash" && HASH_LIBRARIES.contains(&it.dependency) {
            fault("hash", "only floe-hash names a hash library");
        }
        if MAPPING_LIBRARIES.contains(&it.dependency) {
            fault("mmap", "store files are never mapped");
        }
    }
    faults.extend(unreachable(metadata));
    faults
}

fn named(metadata: &Value) -> Vec<Named<'_>> {
    let members = members(metadata);
    let mut found = Vec::new();
    for package in packages(metadata).filter(|package| members.contains(text(&package["id"]))) {
        let name = text(&package["name"]);
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            found.push(Named {
                manifest: format!("crates/{name}/Cargo.toml"),
                package: name,
                dependency: text(&dependency["name"]),
                for_tests: text(&dependency["kind"]) == "dev",
            });
        }
    }
    found
}

/// Follows what is built into a crate: its normal dependencies and theirs.
fn unreachable(metadata: &Value) -> Vec<Fault> {
    let names: BTreeMap<&str, &str> = packages(metadata)
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let mut faults = Vec::new();
    for (start, banned, why) in UNREACHABLE {
        let Some(&root) = members(metadata)
            .iter()
            .find(|id| names.get(*id) == Some(start))
        else {
            continue;
        };
        for id in built_into(metadata, root) {
            let name = names.get(id).copied().unwrap_or_default();
            if banned.contains(&name) {
                let why = format!("`{name}` is built into it: {why}");
                let manifest = format!("crates/{start}/Cargo.toml");
                faults.push(Fault::new(&manifest, 0, "floors", &why));
            }
        }
    }
    faults
}

fn built_into<'a>(metadata: &'a Value, root: &'a str) -> BTreeSet<&'a str> {
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let normal = |edge: &&Value| {
            let kinds = edge["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        let targets = node["deps"].as_array().into_iter().flatten().filter(normal);
        edges.insert(
            text(&node["id"]),
            targets.map(|edge| text(&edge["pkg"])).collect(),
        );
    }
    let mut seen = BTreeSet::new();
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        for next in edges.get(id).into_iter().flatten() {
            if seen.insert(*next) {
                waiting.push(next);
            }
        }
    }
    seen
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn members(metadata: &Value) -> BTreeSet<&str> {
    metadata["workspace_members"]
        .as_array()
        .into_iter()
        .flatten()
        .map(text)
        .collect()
}

/// Absent and null are the empty string: `kind` of a normal dependency is null.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    /// A workspace of one crate with one dependency of the given kind.
    fn rules(package: &str, dependency: &str, kind: Option<&str>) -> Vec<&'static str> {
        let metadata = json!({
            "workspace_members": ["here"],
            "packages": [
                { "id": "here", "name": package, "dependencies": [
                    { "name": dependency, "kind": kind },
                ]},
                { "id": "there", "name": dependency, "dependencies": [
                    { "name": "memmap2", "kind": null },
                ]},
            ],
            "resolve": { "nodes": [
                { "id": "here", "deps": [{ "pkg": "there", "dep_kinds": [{ "kind": kind }] }] },
                { "id": "there", "deps": [] },
            ]},
        });
        faults(&metadata)
            .into_iter()
            .map(|fault| fault.rule)
            .collect()
    }

    #[test]
    fn floor_0_takes_only_what_is_on_its_list() {
        assert_eq!(rules("floe-format", "ring", None), [""; 0]);
        assert_eq!(rules("floe-format", "rustix", None), ["floors"]);
        assert_eq!(rules("floe-format", "rustix", Some("build")), ["floors"]);
        assert_eq!(rules("floe-format", "proptest", Some("dev")), [""; 0]);
        assert_eq!(rules("floe-hash", "ring", None), [""; 0]);
        assert_eq!(rules("floe-hash", "libc", None), ["floors"]);
    }

    #[test]
    fn testkit_is_allowed_as_dev_dependency_only() {
        assert_eq!(rules("floe-store", "floe-testkit", Some("dev")), [""; 0]);
        assert_eq!(rules("floe-store", "floe-testkit", None), ["floors"]);
        assert_eq!(rules("xtask", "floe-testkit", Some("build")), ["floors"]);
    }

    #[test]
    fn only_floe_hash_depends_on_hash_libraries_even_for_tests() {
        assert_eq!(rules("floe-engine", "sha2", None), ["hash"]);
        assert_eq!(rules("floe-engine", "blake3", Some("dev")), ["hash"]);
        assert_eq!(rules("floe-hash", "blake3", None), [""; 0]);
    }

    #[test]
    fn nobody_depends_on_a_mapping_library() {
        assert_eq!(rules("floe-cli", "memmap2", None), ["mmap"]);
        // What strangers do is not looked at: the rule is about store files, which they never see.
        assert_eq!(rules("floe-cli", "anyhow", None), [""; 0]);
    }

    #[test]
    fn the_store_has_no_network_and_the_server_no_engine() {
        assert_eq!(rules("floe-store", "tokio", None), ["floors"]);
        assert_eq!(rules("floe-store", "tokio", Some("dev")), [""; 0]);
        assert_eq!(rules("floe-store", "rusqlite", None), [""; 0]);
        assert_eq!(rules("floe-engine", "tokio", None), [""; 0]);
        assert_eq!(rules("floe-server", "floe-engine", None), ["floors"]);
        assert_eq!(rules("floe-engine", "floe-config", None), ["floors"]);
        assert_eq!(rules("floe-config", "clap", None), ["floors"]);
    }

    #[test]
    fn what_others_bring_along_counts_as_well() {
        let metadata = json!({
            "workspace_members": ["s"],
            "packages": [
                { "id": "s", "name": "floe-store", "dependencies": [] },
                { "id": "m", "name": "middle", "dependencies": [] },
                { "id": "t", "name": "tokio", "dependencies": [] },
            ],
            "resolve": { "nodes": [
                { "id": "s", "deps": [{ "pkg": "m", "dep_kinds": [{ "kind": null }] }] },
                { "id": "m", "deps": [{ "pkg": "t", "dep_kinds": [{ "kind": null }] }] },
                { "id": "t", "deps": [] },
            ]},
        });
        let faults = faults(&metadata);
        assert_eq!(faults.len(), 1);
        assert!(
            faults[0].why.contains("`tokio` is built into it"),
            "{}",
            faults[0].why
        );
    }
}
