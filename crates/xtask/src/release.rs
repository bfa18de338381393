//! `cargo xtask dist`: makes the files of a release in `target/dist`.
//!
//! The same commit gives the same bytes, in any directory and on any day: releases have a
//! toolchain of their own (`packaging/rust-toolchain.toml`), paths of the machine do not reach the
//! files, and all times are that of the commit. docs/releasing.md says how to check that.

mod archive;
mod build;
mod debian_package;
mod documents;
mod elf;
mod files;
mod libfloe;
mod nix_names;
mod notices;
mod oci;
mod packages;
mod platform;
mod second_build;
mod sums;
mod toolchain;
mod tools;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{Outcome, target_directory};
use files::Files;
use platform::{TARGETS, Target};
pub(crate) use second_build::compare_with_second_build;
use sums::Signer;
use toolchain::Toolchain;

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let key = env::var_os("FLOE_RELEASE_KEY").filter(|key| !key.is_empty());
    let mut request = Request {
        allow_dirty: false,
        key: key.map(PathBuf::from),
        targets: Vec::new(),
    };
    let mut only_sign = false;
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.as_slice()) {
            ("--allow-dirty", _) => request.allow_dirty = true,
            ("--sign", _) => only_sign = true,
            ("--target", [triple, ..]) => {
                request.targets.push(Target::find(triple)?);
                arguments.next();
            }
            (other, _) => return Ok(Outcome::Usage(format!("dist does not know {other}"))),
        }
    }
    // With changed files it is no release. The tests sign such packages, too.
    if only_sign || request.key.is_some() && !request.allow_dirty {
        refuse_placeholder("authors", MAINTAINER)?;
        refuse_placeholder("homepage", HOME_PAGE)?;
    }
    let made = if only_sign {
        sums::sign_release(root, &target_directory(root).join("dist"), request.key)?
    } else {
        Release::new(root, request)?.make()?
    };
    for file in made {
        println!("{}", file.display());
    }
    Ok(Outcome::Good)
}

/// The requests of the command line.
pub(crate) struct Request {
    /// Builds also if files differ from the commit.
    pub(crate) allow_dirty: bool,
    /// The private key that signs the release, a file in the format of OpenSSH.
    pub(crate) key: Option<PathBuf>,
    /// The machines to make packages for; if empty, all.
    pub(crate) targets: Vec<&'static Target>,
}

/// One release, while it is made.
pub(crate) struct Release {
    /// The repository.
    root: PathBuf,
    /// `target/dist`, which gets the files.
    directory: PathBuf,
    signer: Signer,
    toolchain: Toolchain,
    /// The version of floe.
    version: &'static str,
    /// The commit, as git names it.
    commit: String,
    targets: Vec<&'static Target>,
    /// The time of the commit in seconds since 1970: the time of all files.
    time: u64,
}

impl Release {
    pub(crate) fn new(root: &Path, request: Request) -> Result<Release> {
        if !request.allow_dirty {
            let changed = git(root, &["status", "--porcelain"])?;
            ensure!(
                changed.is_empty(),
                "cannot make a release of {}: files differ from the commit; commit them, or try \
                 --allow-dirty\n{changed}",
                root.display()
            );
        }
        let directory = target_directory(root).join("dist");
        // A file of another version would be published too.
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let time = git(root, &["log", "-1", "--format=%ct"])?;
        Ok(Release {
            root: root.to_owned(),
            // A key that ssh-keygen cannot read fails before the builds.
            signer: Signer::new(root, &directory, request.key)?,
            directory,
            toolchain: Toolchain::pinned(root)?,
            // All packages of the workspace have one version.
            version: env!("CARGO_PKG_VERSION"),
            commit: git(root, &["rev-parse", "HEAD"])?,
            targets: if request.targets.is_empty() {
                TARGETS.iter().collect()
            } else {
                request.targets
            },
            time: time.parse().context("git prints no time")?,
        })
    }

    /// Makes all files and returns their paths.
    pub(crate) fn make(&self) -> Result<Vec<PathBuf>> {
        let host = Target::find(&self.toolchain.host()?)?;
        let own = self.make_files(host, None)?;
        let mut made = Vec::new();
        for target in &self.targets {
            if target.triple == host.triple {
                made.extend(self.make_packages(&own)?);
                made.extend(self.make_libfloe(host)?);
            } else {
                made.extend(self.make_packages(&self.make_files(target, Some(&own.floe))?)?);
            }
        }
        made.push(self.make_nix_names()?);
        made.push(self.signer.write_installer()?);
        let sums = self.signer.write_sums(&made)?;
        made.extend(sums);
        Ok(made)
    }

    /// Makes the packages of the static binary, each checked by itself.
    fn make_packages(&self, files: &Files) -> Result<Vec<PathBuf>> {
        let platform = files.target.platform();
        let record = self.build_record(files.target)?;
        let record = self.write(&format!("floe-{platform}.build"), record.as_bytes())?;
        Ok(vec![
            self.make_tarball(files)?,
            self.make_deb(files)?,
            self.make_rpm(files)?,
            self.make_image(files)?,
            self.make_sbom(files)?,
            record,
        ])
    }

    fn write(&self, name: &str, contents: &[u8]) -> Result<PathBuf> {
        write(&self.directory, name, contents)
    }
}

/// Refuses to sign packages that lack the address of a maintainer.
fn refuse_placeholder(field: &str, value: &str) -> Result<()> {
    ensure!(
        !value.contains("floe.example"),
        "cannot sign the release: {field} is {value}; write your own into workspace.package of \
         Cargo.toml, and make the release again"
    );
    Ok(())
}

/// The maintainer of the packages.
const MAINTAINER: &str = env!("CARGO_PKG_AUTHORS");

/// The home page of the packages.
const HOME_PAGE: &str = env!("CARGO_PKG_HOMEPAGE");

fn write(directory: &Path, name: &str, contents: &[u8]) -> Result<PathBuf> {
    let file = directory.join(name);
    fs::write(&file, contents).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    output(git.args(arguments).current_dir(root))
}

/// Runs a command and returns its stdout without the last newline.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let arguments: Vec<String> = command
        .get_args()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let shown = format!("{} {}", name.to_string_lossy(), arguments.join(" "));
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{shown}: {}\n{stderr}",
        output.status
    );
    let text = String::from_utf8(output.stdout).with_context(|| format!("reading from {shown}"))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_not_signed() {
        let error = refuse_placeholder("authors", "floe <floe@floe.example>").unwrap_err();
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
        refuse_placeholder("authors", "floe <floe@example.org>").unwrap();
        assert!(MAINTAINER.contains('@') && HOME_PAGE.contains("://"));
    }
}
