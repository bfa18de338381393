//! The licences of the works that a program or library contains.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Release, output};

/// The licences of all dependencies of a package in this workspace, with their texts.
pub(super) fn notices(release: &Release, package: &str, target: &str) -> Result<String> {
    let root = &release.root;
    let mut cargo = release.toolchain.command("cargo");
    let arguments = ["metadata", "--format-version=1", "--locked"];
    let metadata = output(
        cargo
            .args(arguments)
            .args(["--filter-platform", target])
            .current_dir(root),
    )?;
    let metadata: Value = serde_json::from_str(&metadata).context("cannot read cargo metadata")?;
    let linked = linked(&metadata, package)?;
    let mut text = String::from(INTRODUCTION);
    let mut packages: Vec<&Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| linked.contains(package["id"].as_str().unwrap_or_default()))
        // The packages of this workspace have no source.
        .filter(|package| !package["source"].is_null())
        .collect();
    packages.sort_by_key(|package| package["name"].as_str());
    ensure!(!packages.is_empty(), "{package} has no dependencies");
    for package in packages {
        let field = |name: &str| package[name].as_str().unwrap_or_default();
        let (name, version, licence) = (field("name"), field("version"), field("license"));
        text += &format!(
            "\n=== {name} {version} ({licence})\n{}\n",
            field("repository")
        );
        let manifest = Path::new(field("manifest_path"));
        for licence in licence_texts(manifest.parent().unwrap_or(root))? {
            text += &format!("\n{}\n", licence.trim_end());
        }
    }
    Ok(text)
}

/// The ids of the packages in a program or library: its normal dependencies, without those of tests
/// and build scripts.
fn linked(metadata: &Value, package: &str) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array();
    let nodes = nodes.context("cargo metadata has no dependency graph")?;
    let node = |id: &str| nodes.iter().find(|node| node["id"] == id);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let first = packages.into_iter().find(|found| found["name"] == package);
    let Some(first) = first.and_then(|package| package["id"].as_str()) else {
        bail!("cargo metadata has no package {package}");
    };
    let mut seen = BTreeSet::new();
    let mut waiting = vec![first.to_owned()];
    while let Some(id) = waiting.pop() {
        if seen.contains(&id) {
            continue;
        }
        let dependencies = node(&id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            // Normal dependencies have the kind null.
            if kinds.into_iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str().map(str::to_owned));
            }
        }
        seen.insert(id);
    }
    Ok(seen)
}

/// The licence files beside a package's manifest.
fn licence_texts(package: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let entries =
        fs::read_dir(package).with_context(|| format!("cannot read {}", package.display()))?;
    for entry in entries {
        let file = entry?.path();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let is_licence = ["LICEN", "COPYING", "NOTICE", "COPYRIGHT"]
            .iter()
            .any(|word| name.to_uppercase().starts_with(word));
        if is_licence && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    let read = |file: &PathBuf| {
        fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
    };
    files.iter().map(read).collect()
}

const INTRODUCTION: &str = "\
floe is MIT OR Apache-2.0. Its binary also contains the works below and the GNU C library
(LGPL-2.1-or-later), whose source is published by the Linux distribution on which the binary was
built. The source of floe is public, so that the binary can be linked again.
";
