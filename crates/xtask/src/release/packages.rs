//! The packages of distributions, and the list of what the program contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::files::Files;
use super::tools::{CARGO_CYCLONEDX, CARGO_DEB, CARGO_GENERATE_RPM, Tool};
use super::{Release, output};
use crate::target_directory;

impl Release {
    /// Makes `floe_VERSION-1_ARCHITECTURE.deb` from `package.metadata.deb` of floe-cli.
    pub(super) fn make_deb(&self, files: &Files) -> Result<PathBuf> {
        let name = format!("floe_{}-1_{}.deb", self.version, files.target.debian);
        let deb = self.directory.join(name);
        output(
            self.cargo_tool(&CARGO_DEB)?
                .args(["--quiet", "--no-build", "--no-strip", "--package=floe-cli"])
                .args(["--target", files.target.triple, "--output"])
                .arg(&deb),
        )?;
        Ok(deb)
    }

    /// Makes `floe-VERSION-1.ARCHITECTURE.rpm` from `package.metadata.generate-rpm` of floe-cli.
    pub(super) fn make_rpm(&self, files: &Files) -> Result<PathBuf> {
        let name = format!("floe-{}-1.{}.rpm", self.version, files.target.processor);
        let rpm = self.directory.join(name);
        output(
            self.cargo_tool(&CARGO_GENERATE_RPM)?
                .arg("generate-rpm")
                .args(["--package=crates/floe-cli", "--auto-req=disabled"])
                .args(["--target", files.target.triple, "--output"])
                .arg(&rpm),
        )?;
        Ok(rpm)
    }

    /// Makes `floe-VERSION-PLATFORM.cdx.json`, the bill of materials of the static binary in the
    /// format of CycloneDX.
    pub(super) fn make_sbom(&self, files: &Files) -> Result<PathBuf> {
        let name = format!("floe-{}-{}.cdx", self.version, files.target.platform());
        let package = self.root.join("crates/floe-cli");
        output(
            self.cargo_tool(&CARGO_CYCLONEDX)?
                .args([
                    "cyclonedx",
                    "--quiet",
                    "--format=json",
                    "--spec-version=1.5",
                ])
                .args(["--no-build-deps", "--target", files.target.triple])
                .args(["--override-filename", &name, "--manifest-path"])
                .arg(package.join("Cargo.toml")),
        )?;
        // The tool writes beside the manifests of all members of the workspace.
        let file = format!("{name}.json");
        let written = fs::read_to_string(package.join(&file));
        let written = written.context("cargo-cyclonedx wrote no file")?;
        remove_beside_manifests(&self.root, &file)?;
        // The ids of the crates contain the place of the repository.
        let own = format!("path+file://{}/", self.root.display());
        let sbom = written.replace(&own, "path+file:///floe/");
        self.write(&file, sbom.as_bytes())
    }

    /// A tool that reads the manifests of the workspace.
    fn cargo_tool(&self, tool: &Tool) -> Result<Command> {
        let mut command = Command::new(self.tool(tool)?);
        command
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", target_directory(&self.root))
            .env("RUSTUP_TOOLCHAIN", self.toolchain.channel())
            .env("SOURCE_DATE_EPOCH", self.time.to_string());
        Ok(command)
    }
}

fn remove_beside_manifests(root: &Path, file: &str) -> Result<()> {
    let crates = root.join("crates");
    let entries = fs::read_dir(&crates).with_context(|| format!("reading {}", crates.display()))?;
    for entry in entries {
        let written = entry?.path().join(file);
        if written.exists() {
            fs::remove_file(&written)
                .with_context(|| format!("cannot remove {}", written.display()))?;
        }
    }
    let written = root.join("bench").join(file);
    if written.exists() {
        fs::remove_file(&written)
            .with_context(|| format!("cannot remove {}", written.display()))?;
    }
    Ok(())
}
