//! The packages of a release, and what installs them. Most tests run only with
//! `cargo xtask test --full`, which makes the release.

mod aarch64;
mod debian;
mod image;
mod install_script;
mod nix_files;
mod rpm;
mod sums;
mod upgrade;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{run, scratch, skip};

use crate::support::floe;

/// The top of the repository.
fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the directory with the files of the release, or `None` without `--full`.
fn full_release() -> Option<PathBuf> {
    std::env::var_os("FLOE_TEST_FULL")?;
    let directory = std::env::var_os("FLOE_TEST_DIST");
    Some(directory.expect("--full makes a release").into())
}

/// Returns the one file of the release whose name begins and ends like this.
fn release_file(release: &Path, prefix: &str, suffix: &str) -> PathBuf {
    let names = fs::read_dir(release).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_wanted = |name: &String| name.starts_with(prefix) && name.ends_with(suffix);
    let name = names.find(is_wanted);
    release.join(name.unwrap_or_else(|| panic!("no {prefix}*{suffix} in {}", release.display())))
}

/// As Nix names the machine that runs the tests.
pub(crate) fn platform() -> String {
    format!("{}-linux", std::env::consts::ARCH)
}

/// Unpacks the static binary of the release into a directory.
pub(crate) fn unpack_static_binary(platform: &str, into: &Path) -> Option<PathBuf> {
    let release = full_release()?;
    let tarball = release_file(&release, "floe-", &format!("-{platform}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=2", "--wildcards", "--file"]);
    tar.arg(tarball).arg("--directory").arg(into);
    run(tar.arg("*/bin/floe")).expect(0);
    Some(into.join("floe"))
}

/// Returns the names of the links that `floe link-names` creates.
fn linked_names() -> BTreeSet<String> {
    let scratch = scratch();
    let directory = scratch.join("bin");
    let mut link_names = floe(["link-names", directory.to_str().unwrap()]);
    link_names.env("PATH", "/nonexistent");
    run(link_names.env("HOME", scratch.path())).expect(0);
    links_in(&directory)
}

/// Returns the names of the links in a directory.
fn links_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let links = entries.filter(|entry| entry.file_type().unwrap().is_symlink());
    links
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// Whether this process may mount file systems and change the root directory.
fn may_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("chroot", "only root may change the root directory");
    }
    is_root
}

/// Returns a command that runs a program in another root directory, as a user with this id. The
/// program sees /dev and /proc, as in a container.
fn in_root(root: &Path, user: u32, program: &[&str]) -> Command {
    let mount = "set -e
        root=$1 user=$2
        shift 2
        for directory in dev proc; do
            mkdir -p \"$root/$directory\"
            mount --rbind \"/$directory\" \"$root/$directory\"
        done
        exec chroot --userspec=\"$user:$user\" --groups= \"$root\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh"]).arg(root);
    command.arg(user.to_string()).args(program);
    command
}

/// Returns a command that runs a script in a copy of a root directory. The copy is in memory and
/// ends with the command. The script finds `files` below `/files`.
fn in_copy_of(root: &Path, files: &Path, script: &str) -> Command {
    let mount = "set -e
        mount -t tmpfs tmpfs \"$1\"
        cd \"$1\"
        mkdir upper work root
        mount -t overlay -o \"lowerdir=$2,upperdir=$1/upper,workdir=$1/work\" overlay root
        mkdir root/files
        mount --bind \"$3\" root/files
        for directory in dev proc sys; do mount --rbind /$directory root/$directory; done
        exec chroot root /bin/sh -e -c \"$4\"";
    let place = files.join("mount");
    fs::create_dir_all(&place).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount, "sh"]);
    command.args([&place, root, files]).arg(script);
    command
        .env_clear()
        .env("HOME", "/root")
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}
