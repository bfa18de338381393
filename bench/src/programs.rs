//! The programs that are measured, and the lock that gives one benchmark the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use xtask::{system, workspace};

/// The floe binary: the one in FLOE_BIN, or else a release build.
pub(crate) fn floe(root: &Path) -> Result<PathBuf> {
    if let Some(given) = system::variable("FLOE_BIN") {
        return existing(root.join(given), "FLOE_BIN");
    }
    build_release(root)?;
    let binary = workspace::target_directory(root).join("release/floe");
    existing(binary, "cargo build")
}

/// This tool, built together with floe, for the baselines.
pub(crate) fn bench(root: &Path) -> Result<PathBuf> {
    build_release(root)?;
    Ok(workspace::target_directory(root).join("release/bench"))
}

/// Builds floe and this tool at once. Apart, cargo would choose other features for their shared
/// dependencies, and the baselines would use other decoders than floe.
fn build_release(root: &Path) -> Result<()> {
    let arguments = [
        "build",
        "--release",
        "--package",
        "bench",
        "--package",
        "floe-cli",
    ];
    build(&mut workspace::cargo(root, &arguments), "floe")
}

/// The harmonia server: the one in FLOE_BENCH_HARMONIA_BIN, or a build of the checkout in
/// FLOE_BENCH_HARMONIA.
pub(crate) fn harmonia() -> Result<PathBuf> {
    if let Some(binary) = system::variable("FLOE_BENCH_HARMONIA_BIN") {
        return existing(binary.into(), "FLOE_BENCH_HARMONIA_BIN");
    }
    let checkout = system::variable("FLOE_BENCH_HARMONIA").map(PathBuf::from);
    let checkout = checkout.context("FLOE_BENCH_HARMONIA is not set")?;
    // Keep its output out of our target directory.
    let target = checkout.join("target");
    let arguments = ["build", "--release", "--package", "harmonia-cache"];
    let mut cargo = workspace::cargo(&checkout, &arguments);
    build(cargo.env("CARGO_TARGET_DIR", &target), "harmonia")?;
    existing(target.join("release/harmonia-cache"), "cargo build")
}

/// The S3 server that `cargo xtask test` builds.
pub(crate) fn versitygw(root: &Path) -> Result<PathBuf> {
    let program = workspace::target_directory(root).join("tools/versitygw-v1.8.0/versitygw");
    existing(program, "cargo xtask test")
}

/// The installed program, which apt-get provides in a package.
pub(crate) fn installed(program: &str, package: &str) -> Result<PathBuf> {
    system::find_command(program)
        .with_context(|| format!("{program} is not installed; run apt-get install {package}"))
}

fn build(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("cannot build {what}"))?;
    ensure!(status.success(), "cannot build {what}: {status}; see above");
    Ok(())
}

fn existing(binary: PathBuf, origin: &str) -> Result<PathBuf> {
    ensure!(
        binary.is_file(),
        "{origin} gives {}, which is not a file",
        binary.display()
    );
    Ok(binary)
}

/// Locks the directory of the benchmarks: two at once would slow each other down and use the same
/// directories. The lock is held until the file is dropped.
pub(crate) fn lock(directory: &Path) -> Result<fs::File> {
    let file = directory.join("lock");
    let lock = fs::create_dir_all(directory).and_then(|()| fs::File::create(&file));
    let lock = lock.with_context(|| format!("cannot create {}", file.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(_) => bail!("another benchmark runs in {}", directory.display()),
    }
}
