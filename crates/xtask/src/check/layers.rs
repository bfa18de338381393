//! Rules about dependencies: which crate may use which.
//!
//! The rules read `cargo metadata`, so they see features, renames and platform tables like cargo.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Fault;

/// The crates of the workspace, lowest layer first. A crate uses only crates of lower layers.
const LAYERS: &[&[&str]] = &[
    &["floe-hash", "floe-messages", "floe-queue", "floe-bench"],
    &["floe-format"],
    &["floe-store", "floe-wire"],
    &["floe-transfer", "floe-server"],
    &["floe-cache", "floe-daemon", "floe-remote"],
    &["floe-copy", "floe-names"],
    &["floe-config"],
    &["floe-ffi", "floe-cli"],
];

/// Returns the names of all crates that floe ships.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    LAYERS.iter().copied().flatten().copied()
}

/// Crates that other crates use only in tests.
const TEST_ONLY: &[&str] = &["floe-testkit"];

/// Crates of values and grammars, with all dependencies that they may have. Before you add a name,
/// check that the new crate opens no file or socket and starts no thread.
const PURE: &[(&str, &[&str])] = &[
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
    // Its hash pool starts threads; apart from them it is computation only.
    (
        "floe-hash",
        &[
            "blake3",
            "md-5",
            "parking_lot",
            "ring",
            "sha1",
            "sha2",
            "thiserror",
        ],
    ),
    ("floe-queue", &["libc", "loom"]),
    ("floe-messages", &["thiserror"]),
    (
        "floe-wire",
        &["floe-format", "serde", "serde_json", "thiserror", "zstd"],
    ),
];

/// Packages that must not be in the build of a crate, also not through other packages.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
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
        ],
        "the store uses no network and no async runtime",
    ),
    (
        "floe-config",
        &["clap", "anyhow"],
        "configuration is plain values, without a command line",
    ),
];

const HASH_LIBRARIES: &[&str] = &["sha2", "sha1", "md-5", "md5", "blake3", "sha1_smol"];
const MAPPING_LIBRARIES: &[&str] = &["memmap", "memmap2", "mmap-rs", "fmmap"];

/// A dependency that a manifest of the workspace names.
struct Dependency<'a> {
    package: &'a str,
    name: &'a str,
    is_for_tests: bool,
}

/// Checks what `cargo metadata` prints.
pub(super) fn faults(metadata: &Value) -> Vec<Fault> {
    let mut faults: Vec<Fault> = dependencies(metadata)
        .iter()
        .flat_map(dependency_faults)
        .collect();
    faults.extend(forbidden_packages(metadata));
    faults
}

fn dependency_faults(dependency: &Dependency<'_>) -> Vec<Fault> {
    let &Dependency {
        package,
        name,
        is_for_tests,
    } = dependency;
    let pure = PURE.iter().find(|(pure, _)| *pure == package);
    let is_listed = pure.is_none_or(|(_, allowed)| allowed.contains(&name));
    let is_lower = match (layer(package), layer(name)) {
        (Some(user), Some(used)) => used < user,
        _ => true,
    };
    let is_tool = layer(package).is_none();
    let broken = [
        (
            !is_for_tests && !is_listed,
            "layers",
            "not on the list of pure crates (crates/xtask/src/check/layers.rs)",
        ),
        (
            !is_for_tests && !is_lower,
            "layers",
            "a crate uses only crates of lower layers",
        ),
        (
            !is_for_tests && !is_tool && TEST_ONLY.contains(&name),
            "layers",
            "only tests use this crate",
        ),
        (
            package != "floe-hash" && HASH_LIBRARIES.contains(&name),
            "hash",
            "only floe-hash names a hash library",
        ),
        (
            MAPPING_LIBRARIES.contains(&name),
            "mmap",
            "store files are never mapped",
        ),
    ];
    broken
        .into_iter()
        .filter(|(is_broken, _, _)| *is_broken)
        .map(|(_, rule, why)| fault(package, rule, &format!("dependency `{name}`: {why}")))
        .collect()
}

fn layer(package: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&package))
}

fn fault(package: &str, rule: &'static str, why: &str) -> Fault {
    Fault::new(&format!("crates/{package}/Cargo.toml"), 0, rule, why)
}

fn dependencies(metadata: &Value) -> Vec<Dependency<'_>> {
    let members = members(metadata);
    let mut found = Vec::new();
    for package in packages(metadata).filter(|package| members.contains(text(&package["id"]))) {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            found.push(Dependency {
                package: text(&package["name"]),
                name: text(&dependency["name"]),
                is_for_tests: text(&dependency["kind"]) == "dev",
            });
        }
    }
    found
}

/// Follows the normal dependencies of each crate in [`FORBIDDEN`].
fn forbidden_packages(metadata: &Value) -> Vec<Fault> {
    let names: BTreeMap<&str, &str> = packages(metadata)
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let mut faults = Vec::new();
    for (package, forbidden, why) in FORBIDDEN {
        let members = members(metadata);
        let Some(root) = members.iter().find(|id| names.get(*id) == Some(package)) else {
            continue;
        };
        for id in built_into(metadata, root) {
            let name = names.get(id).copied().unwrap_or_default();
            if forbidden.contains(&name) {
                let why = format!("its build contains `{name}`: {why}");
                faults.push(fault(package, "layers", &why));
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

    /// Returns the rules that a crate with one dependency of the given kind breaks.
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
        let faults = faults(&metadata).into_iter();
        faults.map(|fault| fault.rule).collect()
    }

    #[test]
    fn pure_crates_use_only_listed_crates() {
        assert_eq!(rules("floe-format", "ring", None), [""; 0]);
        assert_eq!(rules("floe-format", "rustix", None), ["layers"]);
        assert_eq!(rules("floe-format", "rustix", Some("build")), ["layers"]);
        assert_eq!(rules("floe-format", "proptest", Some("dev")), [""; 0]);
        assert_eq!(rules("floe-hash", "ring", None), [""; 0]);
        assert_eq!(rules("floe-hash", "libc", None), ["layers"]);
    }

    #[test]
    fn crates_use_only_lower_layers() {
        assert_eq!(rules("floe-transfer", "floe-store", None), [""; 0]);
        assert_eq!(rules("floe-store", "floe-transfer", None), ["layers"]);
        assert_eq!(rules("floe-server", "floe-copy", None), ["layers"]);
        assert_eq!(rules("floe-server", "floe-copy", Some("dev")), [""; 0]);
        assert_eq!(rules("xtask", "floe-cli", None), [""; 0]);
    }

    #[test]
    fn testkit_is_for_tests_and_tools() {
        assert_eq!(rules("floe-cli", "floe-testkit", None), ["layers"]);
        assert_eq!(rules("floe-cli", "floe-testkit", Some("dev")), [""; 0]);
        assert_eq!(rules("bench", "floe-testkit", None), [""; 0]);
    }

    #[test]
    fn hash_libraries_belong_to_floe_hash_even_in_tests() {
        assert_eq!(rules("floe-cache", "sha2", None), ["hash"]);
        assert_eq!(rules("floe-cache", "blake3", Some("dev")), ["hash"]);
        assert_eq!(rules("floe-hash", "blake3", None), [""; 0]);
    }

    #[test]
    fn mapping_libraries_are_forbidden_in_own_manifests() {
        assert_eq!(rules("floe-cli", "memmap2", None), ["mmap"]);
        // Other packages may map files: they never see store files.
        assert_eq!(rules("floe-cli", "anyhow", None), [""; 0]);
    }

    #[test]
    fn store_has_no_async_runtime_outside_tests() {
        assert_eq!(rules("floe-store", "tokio", None), ["layers"]);
        assert_eq!(rules("floe-store", "tokio", Some("dev")), [""; 0]);
        assert_eq!(rules("floe-store", "rusqlite", None), [""; 0]);
        assert_eq!(rules("floe-cache", "tokio", None), [""; 0]);
    }

    #[test]
    fn indirect_dependencies_count() {
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
            faults[0].why.contains("contains `tokio`"),
            "{}",
            faults[0].why
        );
    }
}
