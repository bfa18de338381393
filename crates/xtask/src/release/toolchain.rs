//! The toolchain of releases.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::output;

/// A toolchain that rustup has installed.
pub(super) struct Toolchain {
    /// The version of Rust, as rustup names it.
    channel: String,
}

impl Toolchain {
    /// Returns the toolchain of `packaging/rust-toolchain.toml`, and installs it if it is missing.
    pub(super) fn pinned(root: &Path) -> Result<Toolchain> {
        let file = root.join("packaging/rust-toolchain.toml");
        let text =
            fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let table: toml::Table =
            toml::from_str(&text).with_context(|| format!("cannot parse {}", file.display()))?;
        let channel = table["toolchain"]["channel"].as_str();
        let channel = channel.context("the toolchain has no channel")?.to_owned();
        let toolchain = Toolchain { channel };
        // rustup would also update a toolchain that is there.
        if toolchain.version().is_err() {
            let options = ["--profile=minimal", "--no-self-update"];
            let install = ["toolchain", "install", &toolchain.channel];
            rustup(&[&install[..], &options].concat())?;
        }
        Ok(toolchain)
    }

    /// The name of the toolchain, as `RUSTUP_TOOLCHAIN` takes it.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Installs the standard library for a target.
    pub(super) fn add_target(&self, target: &str) -> Result<()> {
        let library = Path::new(&self.sysroot()?).join("lib/rustlib");
        if library.join(target).is_dir() {
            return Ok(());
        }
        rustup(&["target", "add", "--toolchain", &self.channel, target])
    }

    /// A command of this toolchain.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("rustup");
        command.args(["run", &self.channel, program]);
        // A release depends on no setting of this shell.
        for variable in [
            "CARGO_BUILD_RUSTC",
            "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_ENCODED_RUSTFLAGS",
            "CFLAGS",
            "RUSTC",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_WRAPPER",
            "RUSTFLAGS",
        ] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// The output of `rustc -vV`.
    pub(super) fn version(&self) -> Result<String> {
        output(self.command("rustc").arg("-vV"))
    }

    /// The target triple of this machine.
    pub(super) fn host(&self) -> Result<String> {
        self.version_field("host")
    }

    /// The commit of the compiler, which the paths of the standard library contain.
    pub(super) fn commit(&self) -> Result<String> {
        self.version_field("commit-hash")
    }

    /// The directory with the libraries of the toolchain.
    pub(super) fn sysroot(&self) -> Result<String> {
        output(self.command("rustc").args(["--print", "sysroot"]))
    }

    fn version_field(&self, name: &str) -> Result<String> {
        let text = self.version()?;
        let field = text.lines().find_map(|line| {
            let value = line.strip_prefix(name)?;
            value.strip_prefix(": ")
        });
        Ok(field
            .with_context(|| format!("rustc -vV prints no {name}"))?
            .to_owned())
    }
}

fn rustup(arguments: &[&str]) -> Result<()> {
    let mut rustup = Command::new("rustup");
    let status = rustup
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run rustup, which installs the toolchain of releases")?;
    ensure!(status.success(), "rustup {}: {status}", arguments.join(" "));
    Ok(())
}
