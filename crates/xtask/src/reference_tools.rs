//! Reference tools, with which the tests compare floe: real Nix, real servers, real closures.
//!
//! A missing reference tool is always reported. A test that compared nothing must not look like a
//! test that found no difference.

mod built_tools;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use xtask::corpora;
use xtask::system::{find_command, is_root, search_path};

use built_tools::{BUILT_TOOLS, BuiltTool};

/// Debian packages and the commands that the tests need from them.
const TOOLS: &[(&str, &[&str])] = &[
    ("nix-bin", &["nix", "nix-store", "nix-hash", "nix-build"]),
    ("nginx", &["nginx"]),
    // A proxy with the PROXY protocol.
    ("haproxy", &["haproxy"]),
    // Makes the certificates of TLS servers.
    ("openssl", &["openssl"]),
    ("acl", &["setfacl", "getfacl"]),
    ("attr", &["setfattr", "getfattr"]),
    ("xz-utils", &["xz"]),
    ("zstd", &["zstd"]),
    // Disks of the power-cut tests.
    ("mount", &["mount", "umount", "losetup"]),
    ("e2fsprogs", &["mkfs.ext4"]),
    ("xfsprogs", &["mkfs.xfs"]),
    ("btrfs-progs", &["mkfs.btrfs"]),
    // Builds the examples in C and C++.
    ("g++", &["cc", "c++"]),
    ("binutils", &["nm"]),
    ("pkg-config", &["pkg-config"]),
    // Renders the manual pages.
    ("groff-base", &["groff"]),
    // Name server and proxy for the tests of the network.
    ("dnsmasq-base", &["dnsmasq"]),
    ("tinyproxy-bin", &["tinyproxy"]),
    // Sets the clock of one process.
    ("faketime", &["faketime"]),
    // Scrapes metrics, and checks them and the alert rules.
    ("prometheus", &["prometheus", "promtool"]),
    // Writes lines of login files.
    ("apache2-utils", &["htpasswd"]),
    // Install the packages of a release, in several shells.
    ("busybox", &["busybox"]),
    ("curl", &["curl"]),
    ("wget", &["wget"]),
    ("dash", &["dash"]),
    ("openssh-client", &["ssh", "ssh-keygen"]),
    ("openssh-server", &["sshd"]),
    // Ends the connections of a Nix daemon.
    ("procps", &["pkill"]),
    // Makes system calls fail.
    ("strace", &["strace"]),
    // Complete command lines.
    ("zsh", &["zsh"]),
    ("fish", &["fish"]),
    // Rates the units.
    ("systemd", &["systemd-analyze"]),
    ("shellcheck", &["shellcheck"]),
    // Reads buckets.
    ("rclone", &["rclone"]),
    // Counts the instructions of fixed workloads.
    ("valgrind", &["valgrind"]),
    // Runs bench/corpus/make-corpus.
    ("python3", &["python3"]),
];

/// Further tools for `cargo xtask test --full`, which tests the packages of a release.
const FULL_TOOLS: &[(&str, &[&str])] = &[
    // Install packages in an empty system.
    ("debootstrap", &["debootstrap"]),
    ("lintian", &["lintian"]),
    ("rpm", &["rpm"]),
    ("dpkg-dev", &["dpkg-shlibdeps", "dpkg-gensymbols"]),
    // Reads buckets.
    ("awscli", &["aws"]),
    // Shows the pages of a server.
    ("chromium", &["chromium"]),
    // Read images.
    ("skopeo", &["skopeo"]),
    ("umoci", &["umoci"]),
    // Build and run programs for aarch64.
    (
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        &["aarch64-linux-gnu-gcc"],
    ),
    ("qemu-user-static", &["qemu-aarch64-static"]),
];

/// The reference tools as the tests find them.
pub(crate) struct ReferenceTools {
    /// Environment variables for `cargo test`.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// `name: reason` for each missing tool.
    pub(crate) missing: Vec<String>,
    /// A test that lacks a reference tool appends a line `name: reason` to this file.
    pub(crate) skips_file: PathBuf,
    /// The S3 servers that are built while the first stages run.
    builds: Vec<(&'static BuiltTool, JoinHandle<Result<PathBuf>>)>,
}

impl ReferenceTools {
    /// Waits for the tools that are still being built. Returns `name: reason` for each one that is
    /// missing.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut missing = Vec::new();
        for (tool, build) in std::mem::take(&mut self.builds) {
            let built = build.join();
            match built.unwrap_or_else(|_| Err(anyhow!("its build panicked"))) {
                Ok(program) => self
                    .variables
                    .push((tool.variable, program.into_os_string())),
                Err(error) => missing.push(format!("{}: {error:#}", tool.name)),
            }
        }
        missing
    }
}

/// Installs the missing tools and makes the missing corpora, as far as this user may.
pub(crate) fn prepare(root: &Path, full: bool) -> Result<ReferenceTools> {
    let target = crate::target_directory(root);
    fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    let skips_file = target.join("test-skips");
    fs::write(&skips_file, "").with_context(|| format!("cannot write {}", skips_file.display()))?;

    let mut missing = install_missing(full);
    let wanted = BUILT_TOOLS.iter().filter(|tool| full || !tool.only_full);
    let builds = wanted.map(|tool| {
        let directory = target.clone();
        (tool, thread::spawn(move || tool.install(&directory)))
    });
    let builds = builds.collect();
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
        builds,
    })
}

/// The distinct lines of the skips file: several tests may lack the same tool.
pub(crate) fn skips_of_tests(file: &Path) -> Result<Vec<String>> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
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

/// Installs the missing packages. Returns those that are still missing, as `package: reason`.
fn install_missing(full: bool) -> Vec<String> {
    let missing = missing_packages(full);
    if missing.is_empty() {
        return Vec::new();
    }
    println!("missing: {}", missing.join(" "));
    let why = match install(&missing) {
        Ok(()) => "apt-get did not install it".to_string(),
        Err(why) => why,
    };
    missing_packages(full)
        .iter()
        .map(|package| format!("{package}: {why}"))
        .collect()
}

fn missing_packages(full: bool) -> Vec<&'static str> {
    let is_missing = |commands: &[&str]| {
        commands
            .iter()
            .any(|command| find_command(command).is_none())
    };
    let more = if full { FULL_TOOLS } else { &[] };
    TOOLS
        .iter()
        .chain(more)
        .filter(|(_, commands)| is_missing(commands))
        .map(|(package, _)| *package)
        .collect()
}

/// Installs packages by apt-get. Returns the reason if that is impossible.
fn install(packages: &[&str]) -> std::result::Result<(), String> {
    if find_command("apt-get").is_none() {
        return Err("missing, and there is no apt-get to install it".into());
    }
    if !is_root() {
        return Err(format!(
            "missing; as root, run apt-get install {}",
            packages.join(" ")
        ));
    }
    // apt-get waits for the lock of dpkg, but not for the lock of the package lists. On a machine
    // that has just started, another program often holds that one, so try again.
    let deadline = Instant::now() + LISTS_TIMEOUT;
    while !apt_get(&["update"]) {
        if Instant::now() >= deadline {
            return Err("missing, and apt-get update failed".into());
        }
        thread::sleep(Duration::from_secs(5));
    }
    let packages: Vec<&str> = packages.iter().flat_map(|it| it.split(' ')).collect();
    let options = ["install", "--yes", "--no-install-recommends"];
    if !apt_get(&[&options[..], &packages].concat()) {
        // A package that is unknown or whose service does not start must not prevent the others.
        // The caller looks for the commands afterwards, so the status is ignored.
        for package in packages {
            apt_get(&[&options[..], &[package]].concat());
        }
    }
    Ok(())
}

/// As long as apt-get waits for the lock of dpkg.
const LISTS_TIMEOUT: Duration = Duration::from_secs(120);

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
        // Its progress is not a result; its errors go to stderr.
        .stdout(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_skip_counts_once() {
        let text = "nix: missing\n\nnginx: missing\nnix: missing\n";
        assert_eq!(distinct_lines(text), ["nginx: missing", "nix: missing"]);
    }
}
