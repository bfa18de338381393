//! Servers that no package of Debian has, built from source, each version once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::system::find_command;
use xtask::workspace::cargo;

/// A program that its language's own tool builds and installs.
pub(super) struct BuiltTool {
    pub(super) name: &'static str,
    version: &'static str,
    source: Source,
    /// The environment variable by which the tests find the program.
    pub(super) variable: &'static str,
    /// Whether only `cargo xtask test --full` needs it.
    pub(super) only_full: bool,
}

enum Source {
    /// A package of a Go module.
    Go(&'static str),
    /// The features of the crate of this name.
    Crate(&'static str),
}

pub(super) const BUILT_TOOLS: &[BuiltTool] = &[
    BuiltTool {
        name: "versitygw",
        version: "v1.8.0",
        source: Source::Go("github.com/versity/versitygw/cmd/versitygw"),
        variable: "FLOE_TEST_VERSITYGW",
        only_full: false,
    },
    // An S3 server that shares no code with the other one.
    BuiltTool {
        name: "s3s-fs",
        version: "0.12.0",
        source: Source::Crate("binary"),
        variable: "FLOE_TEST_S3S",
        only_full: true,
    },
];

impl BuiltTool {
    /// Returns the program. Builds it if it is not there.
    pub(super) fn install(&self, target: &Path) -> Result<PathBuf> {
        let BuiltTool { name, version, .. } = self;
        let directory = target.join(format!("tools/{name}-{version}"));
        let program = match self.source {
            Source::Go(_) => directory.join(name),
            Source::Crate(_) => directory.join("bin").join(name),
        };
        if program.exists() {
            return Ok(program);
        }
        fs::create_dir_all(&directory)?;
        let mut install = self.command(&directory)?;
        println!("building {name} {version}");
        let status = install.stdin(Stdio::null()).status();
        let status = status.context("cannot start its build")?;
        ensure!(status.success(), "its build: {status}");
        let intermediate = directory.join(INTERMEDIATE);
        if intermediate.exists() {
            fs::remove_dir_all(&intermediate)
                .with_context(|| format!("cannot remove {}", intermediate.display()))?;
        }
        Ok(program)
    }

    fn command(&self, directory: &Path) -> Result<Command> {
        let BuiltTool { name, version, .. } = self;
        Ok(match self.source {
            Source::Go(package) => {
                let go = find_command("go").or_else(|| {
                    let usual = PathBuf::from("/usr/local/go/bin/go");
                    usual.exists().then_some(usual)
                });
                let mut command = Command::new(go.context("needs Go 1.25 or newer to build it")?);
                command
                    .args(["install", &format!("{package}@{version}")])
                    .env("GOBIN", directory)
                    // Otherwise `cargo clean` and `rm` could not delete the sources.
                    .env("GOFLAGS", "-modcacherw");
                command
            }
            Source::Crate(features) => {
                let arguments = ["install", "--quiet", "--locked", "--features", features];
                let mut command = cargo(directory, &arguments);
                command
                    .arg(format!("{name}@{version}"))
                    .arg("--root")
                    .arg(directory)
                    .arg("--target-dir")
                    .arg(directory.join(INTERMEDIATE));
                command
            }
        })
    }
}

/// The directory of the files that cargo needs only during a build.
const INTERMEDIATE: &str = "target";
