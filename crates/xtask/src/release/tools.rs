//! The programs that make packages.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::Release;
use crate::target_directory;

/// A cargo subcommand that `cargo install` provides.
pub(super) struct Tool {
    name: &'static str,
    version: &'static str,
}

pub(super) const CARGO_DEB: Tool = Tool {
    name: "cargo-deb",
    version: "3.8.0",
};
pub(super) const CARGO_GENERATE_RPM: Tool = Tool {
    name: "cargo-generate-rpm",
    version: "0.21.1",
};
pub(super) const CARGO_CYCLONEDX: Tool = Tool {
    name: "cargo-cyclonedx",
    version: "0.5.9",
};

impl Release {
    /// Returns the program of a tool, and installs it below `target/tools` if it is missing.
    pub(super) fn tool(&self, tool: &Tool) -> Result<PathBuf> {
        let directory = target_directory(&self.root).join("tools");
        let place = directory.join(format!("{}-{}", tool.name, tool.version));
        let program = place.join("bin").join(tool.name);
        if !program.exists() {
            let mut install = self.toolchain.command("cargo");
            install
                .args(["install", "--quiet", "--locked", tool.name])
                .args(["--version", tool.version, "--root"])
                .arg(&place)
                // One directory for all of them: they share dependencies.
                .env("CARGO_TARGET_DIR", directory.join("build"))
                .current_dir("/");
            let status = install
                .status()
                .with_context(|| format!("cannot install {}", tool.name))?;
            ensure!(status.success(), "cargo install {}: {status}", tool.name);
        }
        Ok(program)
    }
}
