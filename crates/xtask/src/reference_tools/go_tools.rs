//! Servers in Go, built from source by `go install`, each version once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::system::find_command;

/// A program of a Go module.
pub(super) struct GoTool {
    name: &'static str,
    package: &'static str,
    version: &'static str,
}

/// An S3 server.
pub(super) const VERSITYGW: GoTool = GoTool {
    name: "versitygw",
    package: "github.com/versity/versitygw/cmd/versitygw",
    version: "v1.8.0",
};

/// Returns the program. Builds it if it is not there.
pub(super) fn install(target: &Path, tool: &GoTool) -> Result<PathBuf> {
    let GoTool {
        name,
        package,
        version,
    } = tool;
    let directory = target.join(format!("tools/{name}-{version}"));
    let program = directory.join(name);
    if program.exists() {
        return Ok(program);
    }
    let go = find_command("go").or_else(|| {
        let usual = PathBuf::from("/usr/local/go/bin/go");
        usual.exists().then_some(usual)
    });
    let go = go.context("needs Go 1.25 or newer to build it")?;
    println!("building {name} {version}");
    fs::create_dir_all(&directory)?;
    let status = Command::new(go)
        .args(["install", &format!("{package}@{version}")])
        .env("GOBIN", &directory)
        // Otherwise `cargo clean` and `rm` could not delete the sources.
        .env("GOFLAGS", "-modcacherw")
        .stdin(Stdio::null())
        .status()
        .context("cannot run go")?;
    ensure!(status.success(), "go install {package}: {status}");
    Ok(program)
}
