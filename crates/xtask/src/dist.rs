//! `cargo xtask dist`: the one file that is given away.
//!
//! 1. build the release with the C library inside it;
//! 2. ask `ldd` whether anything is left that it would load;
//! 3. lay it into `target/dist` with the notices of all that is in it, and its SHA-256.

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

/// Makes `target/dist/floe`, and says where that is.
pub(crate) fn make(root: &Path) -> Result<PathBuf> {
    let triple = triple(root)?;
    let built = build(root, &triple)?;
    let directory = target_directory(root).join("dist");
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let floe = directory.join("floe");
    fs::copy(&built, &floe).with_context(|| format!("copying {}", built.display()))?;
    refuse_dynamic(&floe)?;
    let bytes = fs::read(&floe).with_context(|| format!("reading {}", floe.display()))?;
    let digest: String = floe_hash::sha256(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let write = |name: &str, text: String| {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    };
    write("SHA256SUMS", format!("{digest}  floe\n"))?;
    write("THIRD-PARTY", notices(root, &triple)?)?;
    Ok(floe)
}

/// The triple of this machine, as its compiler calls it.
fn triple(root: &Path) -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .current_dir(root)
        .output()
        .context("running rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Builds the binary; where it lies.
fn build(root: &Path, triple: &str) -> Result<PathBuf> {
    // With a triple the flags are for the binary alone: what cargo runs while it builds, such as
    // macros, has to be loaded and cannot be static.
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
        .context("running cargo build")?;
    ensure!(status.success(), "cargo build: {status}");
    let built = target_directory(root).join(triple).join("release/floe");
    Ok(built)
}

/// Asks the system's own loader.
fn refuse_dynamic(floe: &Path) -> Result<()> {
    let output = Command::new("ldd")
        .arg(floe)
        .output()
        .context("running ldd")?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // The two forms in which it says so: with a relocatable binary and with any other.
    let is_static = ["statically linked", "not a dynamic executable"]
        .iter()
        .any(|form| said.contains(form));
    ensure!(is_static, "{} is not static: {said}", floe.display());
    Ok(())
}

/// The licences of everything in the binary that others have written, with their texts.
fn notices(root: &Path, triple: &str) -> Result<String> {
    let arguments = ["metadata", "--format-version=1", "--locked"];
    let output = cargo(root, &arguments)
        .args(["--filter-platform", triple])
        .output()
        .context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let linked = linked(&metadata)?;
    let mut text = String::from(INTRODUCTION);
    let mut packages: Vec<&Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| linked.contains(package["id"].as_str().unwrap_or_default()))
        // Ours have no source.
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

/// The packages that end up in the binary: what it depends on, but not for tests and builds.
fn linked(metadata: &Value) -> Result<BTreeSet<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array();
    let nodes = nodes.context("cargo metadata has no dependency graph")?;
    let node = |id: &str| nodes.iter().find(|node| node["id"] == id);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let first = packages
        .into_iter()
        .find(|package| package["name"] == "floe-cli");
    let Some(first) = first.and_then(|package| package["id"].as_str()) else {
        bail!("cargo metadata does not know floe-cli");
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
            // A dependency of the code itself is of no kind by name.
            if kinds.into_iter().any(|kind| kind["kind"].is_null()) {
                waiting.extend(dependency["pkg"].as_str().map(str::to_owned));
            }
        }
        seen.insert(id);
    }
    Ok(seen)
}

/// The texts that lie beside a package's manifest.
fn licence_texts(package: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let entries =
        fs::read_dir(package).with_context(|| format!("reading {}", package.display()))?;
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

/// glibc's own archive instead of its library; musl would be slower in memory and locks. Random
/// numbers come from the kernel: a static program cannot look whether glibc has a function for
/// them, and would go on to `/dev/urandom`, which an empty root directory lacks.
const STATIC: &str = "-Ctarget-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

const INTRODUCTION: &str = "\
floe is MIT OR Apache-2.0. Its binary also holds the works below, and the GNU C library
(LGPL-2.1-or-later), whose source is that of the Linux distribution on which it was built; floe's
own source, with which it can be linked again, is public.
";
