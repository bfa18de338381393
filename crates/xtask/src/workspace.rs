//! The repository, and the cargo that builds it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The top of the repository: the nearest directory above the running package with a `Cargo.lock`.
///
/// Cargo passes the package at run time. A binary that is started by hand uses the package of its
/// build.
pub fn root() -> Result<PathBuf> {
    let package =
        env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let package = Path::new(&package).canonicalize();
    let package = package.context("cannot find the repository")?;
    let root = package
        .ancestors()
        .find(|directory| directory.join("Cargo.lock").is_file());
    Ok(root
        .context("there is no Cargo.lock above this package")?
        .to_owned())
}

/// A cargo of the same toolchain, in the repository and without stdin.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(arguments)
        .current_dir(root)
        // A test program has it, see `run-test-program`.
        .env_remove("RUSTC_BOOTSTRAP")
        .stdin(Stdio::null());
    if in_ci() {
        // The next run begins with an empty target directory.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether this is a run of continuous integration.
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The directory for the output of cargo and of the developer tools.
pub fn target_directory(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
