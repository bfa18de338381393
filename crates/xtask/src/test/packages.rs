//! The packages of the public crates, as for a registry.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cargo;

/// Whether packaged crates are built out of their packages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    Yes,
    No,
}

/// Packages all public crates as for a registry, which needs no network.
pub(super) fn package_crates(root: &Path, verify: Verify) -> Result<()> {
    let mut arguments = vec!["package", "--workspace", "--allow-dirty", "--offline"];
    if verify == Verify::No {
        arguments.push("--no-verify");
    }
    if verify == Verify::Yes {
        forget_packages()?;
    }
    let helpers = ["xtask", "bench", "floe-testkit", "floe-workloads"];
    let excluded = helpers.iter().flat_map(|name| ["--exclude", name]);
    let mut package = cargo(root, &arguments);
    let output = package.args(excluded).output();
    let output = output.context("cannot run cargo package")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success() && !stderr.contains("warning:"),
        "cargo package: {}\n{stderr}",
        output.status
    );
    Ok(())
}

/// Removes the crates of earlier packages that cargo has unpacked: it takes a crate of the same
/// version for the same crate.
fn forget_packages() -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    let unpacked = home.unwrap_or_default().join("registry/src");
    let Ok(registries) = fs::read_dir(unpacked) else {
        return Ok(());
    };
    for registry in registries {
        let registry = registry?;
        // A registry in a directory has no host, which would stand before the hyphen.
        if registry.file_name().as_encoded_bytes().starts_with(b"-") {
            fs::remove_dir_all(registry.path())?;
        }
    }
    Ok(())
}
