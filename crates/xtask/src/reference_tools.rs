//! What the tests judge floe by: real Nix, real servers, real closures.
//!
//! A reference tool that cannot be had is named, never passed over: a test that compared nothing
//! must not look like one that found no difference.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use xtask::corpora;
use xtask::system::{find_command, is_root, search_path};

/// Debian's packages, the commands for which they are needed, and what for.
const TOOLS: &[(&str, &[&str])] = &[
    ("nix-bin", &["nix", "nix-store", "nix-hash", "nix-build"]),
    ("nginx", &["nginx"]),
    // Makes the certificates of a server behind TLS.
    ("openssl", &["openssl"]),
    ("acl", &["setfacl", "getfacl"]),
    ("attr", &["setfattr", "getfattr"]),
    ("xz-utils", &["xz"]),
    ("zstd", &["zstd"]),
    // The examples in C and C++ are built.
    ("g++", &["cc", "c++"]),
    ("binutils", &["nm"]),
    ("pkg-config", &["pkg-config"]),
    // Judges the manual pages.
    ("groff-base", &["groff"]),
    // Between the tests and their servers.
    ("dnsmasq-base", &["dnsmasq"]),
    ("tinyproxy-bin", &["tinyproxy"]),
    // make-corpus is written in it.
    ("python3", &["python3"]),
];

/// What the tests get.
pub(crate) struct ReferenceTools {
    /// Set for `cargo test`.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// `name: why`, for each that could not be had.
    pub(crate) missing: Vec<String>,
    /// To this file a test that had to do without a reference tool appends a line `name: why`.
    pub(crate) skips_file: PathBuf,
}

/// Installs and makes what is not there yet, as far as this user can.
pub(crate) fn prepare(root: &Path, full: bool) -> Result<ReferenceTools> {
    let target = crate::target_directory(root);
    fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
    let skips_file = target.join("test-skips");
    fs::write(&skips_file, "").with_context(|| format!("writing {}", skips_file.display()))?;

    let mut missing = tools();
    let corpora = corpora::prepare(root, full, &mut missing);

    let mut variables = vec![
        ("PATH", search_path()),
        ("FLOE_TEST_CORPORA", corpora.directory.into_os_string()),
        ("FLOE_TEST_SKIPS", skips_file.clone().into_os_string()),
    ];
    if let Some(nix) = corpora.newer_nix {
        variables.push(("FLOE_TEST_NEWER_NIX", nix.into_os_string()));
    }
    if full {
        variables.push(("FLOE_TEST_FULL", "1".into()));
    }
    Ok(ReferenceTools {
        variables,
        missing,
        skips_file,
    })
}

/// The lines that tests left, each once: several tests may miss the same reference tool.
pub(crate) fn skips_of_tests(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(distinct_lines(&text))
}

fn distinct_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(String::from)
        .collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Installs the tools that are absent; what is absent after that, as `package: why`.
fn tools() -> Vec<String> {
    let absent = absent_packages();
    if absent.is_empty() {
        return Vec::new();
    }
    println!("absent: {}", absent.join(" "));
    let why = match install(&absent) {
        Ok(()) => "apt-get did not bring it".to_string(),
        Err(why) => why,
    };
    absent_packages()
        .iter()
        .map(|package| format!("{package}: {why}"))
        .collect()
}

fn absent_packages() -> Vec<&'static str> {
    let absent = |commands: &[&str]| {
        commands
            .iter()
            .any(|command| find_command(command).is_none())
    };
    TOOLS
        .iter()
        .filter(|(_, commands)| absent(commands))
        .map(|(package, _)| *package)
        .collect()
}

/// Asks apt-get, if we may; why not, otherwise.
fn install(packages: &[&str]) -> std::result::Result<(), String> {
    if find_command("apt-get").is_none() {
        return Err("absent, and there is no apt-get to install it with".into());
    }
    if !is_root() {
        return Err(format!(
            "absent; as root: apt-get install {}",
            packages.join(" ")
        ));
    }
    // Unlike that of dpkg, the lock of the lists is not waited for: another program that has it, as
    // a machine that has just started often does, makes this fail at once.
    let deadline = Instant::now() + PATIENCE;
    while !apt_get(&["update"]) {
        if Instant::now() >= deadline {
            return Err("absent, and apt-get update failed".into());
        }
        thread::sleep(Duration::from_secs(5));
    }
    let one_go = ["install", "--yes", "--no-install-recommends"];
    if !apt_get(&[&one_go[..], packages].concat()) {
        // One that is unknown or whose service does not start must not keep the others away.
        // Whether a command arrived is looked at afterwards, so the status says nothing more.
        for package in packages {
            apt_get(&[&one_go[..], &[package]].concat());
        }
    }
    Ok(())
}

/// As long as apt-get itself waits for the lock of dpkg.
const PATIENCE: Duration = Duration::from_secs(120);

fn apt_get(arguments: &[&str]) -> bool {
    let status = Command::new("apt-get")
        .args([
            "-qq",
            "-o",
            "DPkg::Lock::Timeout=120",
            "-o",
            "Acquire::Retries=2",
        ])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        // Its chatter is no result of ours; its complaints go to stderr.
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_skip_counts_once() {
        let text = "nix: absent\n\nnginx: absent\nnix: absent\n";
        assert_eq!(distinct_lines(text), ["nginx: absent", "nix: absent"]);
    }
}
