//! A second build of a release, in another directory with another home of cargo.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::build::cargo_home;
use crate::target_directory;

/// Builds the release for this machine in a copy of the repository, and compares the bytes of each
/// file with those in `target/dist`.
///
/// Errors: a file differs, or nothing could be compared.
pub(crate) fn compare_with_second_build(root: &Path) -> Result<()> {
    let target = target_directory(root);
    let elsewhere = target.join("second-build/elsewhere");
    if elsewhere.exists() {
        fs::remove_dir_all(&elsewhere).context("cannot remove the last second build")?;
    }
    copy_repository(root, &elsewhere)?;
    let home = elsewhere.join("cargo-home");
    link_registry(&home)?;
    let status = Command::new("cargo")
        .args(["xtask", "dist", "--allow-dirty"])
        .current_dir(&elsewhere)
        .env("CARGO_HOME", &home)
        .env("FLOE_RELEASE_KEY", target.join("test-release-key"))
        .env_remove("CARGO")
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .context("cannot run cargo xtask dist")?;
    ensure!(status.success(), "cargo xtask dist: {status}");
    compare(&target.join("dist"), &elsewhere.join("target/dist"))
}

/// Copies the files that git knows or would add, and the commits.
fn copy_repository(root: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    let script = "git ls-files -co --exclude-standard -z | \
                  tar --null --files-from=- --ignore-failed-read -cf - | tar -x -C \"$1\" && \
                  cp -r \"$(git rev-parse --git-common-dir)\" \"$1/.git\" && \
                  git rev-parse HEAD > \"$1/.git/HEAD\" && \
                  mkdir -p \"$1/target\" && ln -s \"$2/tools\" \"$1/target/tools\"";
    let target = target_directory(root).canonicalize();
    let target = target.context("cannot find the target directory")?;
    let status = Command::new("sh")
        .args(["-e", "-c", script, "sh"])
        .args([to, &target])
        .current_dir(root)
        .status()
        .context("cannot copy the repository")?;
    ensure!(status.success(), "cannot copy the repository: {status}");
    Ok(())
}

/// Makes a home of cargo that has the crates of the real one under another path.
fn link_registry(home: &Path) -> Result<()> {
    fs::create_dir_all(home).context("cannot create a home of cargo")?;
    let real = cargo_home()?;
    for name in ["registry", "git", "config.toml"] {
        if real.join(name).exists() {
            symlink(real.join(name), home.join(name)).context("cannot link the registry")?;
        }
    }
    Ok(())
}

fn compare(one: &Path, other: &Path) -> Result<()> {
    let names = |directory: &Path| -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(directory)
            .with_context(|| format!("cannot list {}", directory.display()))?;
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    };
    let (ours, theirs) = (names(one)?, names(other)?);
    ensure!(ours == theirs, "{ours:?} and {theirs:?} differ");
    let differs = |name: &&String| {
        let read = |directory: &Path| fs::read(directory.join(name.as_str())).ok();
        read(one).is_none() || read(one) != read(other)
    };
    let different: Vec<&String> = ours.iter().filter(differs).collect();
    ensure!(
        different.is_empty(),
        "two builds of one commit differ: {different:?}"
    );
    ensure!(ours.len() > 10, "only {} files were compared", ours.len());
    println!("{} files are identical", ours.len());
    Ok(())
}
