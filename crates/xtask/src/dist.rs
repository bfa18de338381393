//! `cargo xtask dist`: makes the static binary for distribution.
//!
//! 1. build a release with the C library linked statically;
//! 2. check with `ldd` that the binary loads no library;
//! 3. copy it to `target/dist` with its SHA-256 and the licences of its dependencies.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{Outcome, cargo, target_directory};

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    if !arguments.is_empty() {
        return Ok(Outcome::Usage(format!(
            "dist takes no arguments, not {arguments:?}"
        )));
    }
    println!("{}", make(root)?.display());
    Ok(Outcome::Good)
}

/// Makes `target/dist/floe` and returns its path.
pub(crate) fn make(root: &Path) -> Result<PathBuf> {
    let triple = triple(root)?;
    let built = build(root, &triple)?;
    let directory = target_directory(root).join("dist");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let floe = directory.join("floe");
    fs::copy(&built, &floe).with_context(|| format!("cannot copy {}", built.display()))?;
    refuse_dynamic(&floe)?;
    let bytes = fs::read(&floe).with_context(|| format!("cannot read {}", floe.display()))?;
    let digest: String = floe_hash::sha256(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let write = |name: &str, text: String| {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("SHA256SUMS", format!("{digest}  floe\n"))?;
    write("THIRD-PARTY", notices(root, &triple)?)?;
    Ok(floe)
}

/// The target triple of this machine.
fn triple(root: &Path) -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .current_dir(root)
        .output()
        .context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Builds the binary and returns its path.
fn build(root: &Path, triple: &str) -> Result<PathBuf> {
    // With a target, the flags apply to the binary alone. Procedural macros are shared libraries
    // and cannot be static.
    let arguments = [
        "build",
        "--release",
        "--locked",
        "--package",
        "floe-cli",
        "--target",
        triple,
        "--config",
        "profile.release.strip='symbols'",
    ];
    let flags = match env::var("RUSTFLAGS") {
        Ok(flags) => format!("{flags} {STATIC}"),
        Err(_) => STATIC.to_owned(),
    };
    let status = cargo(root, &arguments)
        .env("RUSTFLAGS", flags)
        .status()
        .context("cannot run cargo build")?;
    ensure!(status.success(), "cargo build: {status}");
    let built = target_directory(root).join(triple).join("release/floe");
    Ok(built)
}

/// Refuses a binary that loads libraries, by the output of `ldd`.
fn refuse_dynamic(floe: &Path) -> Result<()> {
    let output = Command::new("ldd")
        .arg(floe)
        .output()
        .context("cannot run ldd")?;
    let output = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // ldd prints the first text for a position-independent binary, and else the second.
    let is_static = ["statically linked", "not a dynamic executable"]
        .iter()
        .any(|form| output.contains(form));
    ensure!(is_static, "{} is not static: {output}", floe.display());
    Ok(())
}

/// The licences of all dependencies in the binary, with their texts.
fn notices(root: &Path, triple: &str) -> Result<String> {
    let arguments = ["metadata", "--format-version=1", "--locked"];
    let output = cargo(root, &arguments)
        .args(["--filter-platform", triple])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("cannot read cargo metadata")?;
    let linked = linked(&metadata)?;
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
    ensure!(!packages.is_empty(), "the binary has no dependencies");
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

/// The ids of the packages in the binary: its normal dependencies, without those of tests and build
/// scripts.
fn linked(metadata: &Value) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array();
    let nodes = nodes.context("cargo metadata has no dependency graph")?;
    let node = |id: &str| nodes.iter().find(|node| node["id"] == id);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let first = packages
        .into_iter()
        .find(|package| package["name"] == "floe-cli");
    let Some(first) = first.and_then(|package| package["id"].as_str()) else {
        bail!("cargo metadata has no package floe-cli");
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

/// Links the static archive of glibc, because the allocator and the locks of musl are slower.
/// Random numbers come from a system call: a static program cannot look up the function in glibc,
/// and would fall back to `/dev/urandom`, which an empty root directory lacks.
const STATIC: &str = "-Ctarget-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

const INTRODUCTION: &str = "\
floe is MIT OR Apache-2.0. Its binary also contains the works below and the GNU C library
(LGPL-2.1-or-later), whose source is published by the Linux distribution on which the binary was
built. The source of floe is public, so that the binary can be linked again.
";
