//! `packaging/install.sh` with a local server: as root, as a user, with faults. With `--full`, it
//! installs the real release; otherwise a release with the floe of this build.

mod leftovers;
mod nix_names;
mod servers;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{
    CommandOutput, Scratch, copy_program, find_tool, run, scratch, setpriv_to_nobody, skip,
};

use super::{full_release, platform, repository};
use crate::tmpfs_mount::mount;

/// A signed release behind a server.
struct Served {
    server: FaultServer,
    /// Has the directory `release`, the key and `install.sh`.
    scratch: Scratch,
    /// The public key of the signature.
    signer: String,
}

fn served() -> Option<Served> {
    find_tool("ssh-keygen", "openssh-client")?;
    let scratch = scratch();
    // Another user reads the script.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let release = scratch.join("release");
    fs::create_dir(&release).unwrap();
    match full_release() {
        Some(full) => copy_tarballs(&full, &release),
        None => make_tarball(&release, "0.0.1", &["fish", "man"]),
    }
    let script = repository().join("packaging/install.sh");
    fs::copy(script, scratch.join("install.sh")).unwrap();
    let key = scratch.join("key");
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
    run(keygen.arg(&key)).expect(0);
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let served = Served {
        server: FaultServer::start(&release),
        signer: public.trim().to_owned(),
        scratch,
    };
    served.sum_and_sign();
    Some(served)
}

fn copy_tarballs(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "gz") {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
    }
}

/// Makes a tarball with the floe of this build, its unit, and one file for each of the names.
fn make_tarball(release: &Path, version: &str, names: &[&str]) {
    let files = scratch();
    let top = format!("floe-{version}-{}", platform());
    let directory = files.join(&top);
    for name in names {
        let share = directory.join("share").join(name);
        fs::create_dir_all(&share).unwrap();
        fs::write(share.join("floe"), name).unwrap();
    }
    let documents = directory.join("share/doc/floe/examples");
    fs::create_dir_all(&documents).unwrap();
    let unit = repository().join("packaging/systemd/floe.service");
    fs::copy(unit, documents.join("floe.service")).unwrap();
    fs::create_dir(directory.join("bin")).unwrap();
    copy_program(
        Path::new(env!("CARGO_BIN_EXE_floe")),
        &directory.join("bin/floe"),
    );
    // Debug information would make it ten times as large.
    run(Command::new("strip").arg(directory.join("bin/floe"))).expect(0);
    let mut tar = Command::new("tar");
    tar.args(["--create", "--use-compress-program=gzip -1", "--file"]);
    tar.arg(release.join(format!("{top}.tar.gz")));
    run(tar.arg("--directory").arg(files.path()).arg(&top)).expect(0);
}

impl Served {
    fn release(&self) -> PathBuf {
        self.scratch.join("release")
    }

    /// Writes the sums and their signature.
    fn sum_and_sign(&self) {
        let release = self.release();
        let sums = "rm -f SHA256SUMS.sig; sha256sum *.tar.gz > SHA256SUMS";
        run(Command::new("sh").args(["-c", sums]).current_dir(&release)).expect(0);
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-Y", "sign", "-n", "floe-release", "-f"]);
        sign.arg(self.scratch.join("key"));
        run(sign.arg(release.join("SHA256SUMS"))).expect(0);
    }

    /// Returns the name of the tarball for this machine.
    fn tarball(&self) -> String {
        let suffix = format!("-{}.tar.gz", platform());
        let names = fs::read_dir(self.release()).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.ends_with(&suffix)).unwrap()
    }

    /// Returns `install.sh` with the URL and the key of the release, and these options.
    fn script(&self, options: &[&str]) -> Command {
        let mut script = Command::new("sh");
        script
            .arg(self.scratch.join("install.sh"))
            .args(["--url", &self.server.url(), "--signer", &self.signer])
            .args(options);
        script
    }

    fn install(&self, prefix: &Path) -> CommandOutput {
        run(&mut self.script(&["--prefix", &prefix.display().to_string()]))
    }
}

/// Lists everything below a directory.
fn files_below(directory: &Path) -> BTreeSet<String> {
    let mut find = Command::new("find");
    let found = run(find.arg(directory).args(["-mindepth", "1"])).expect(0);
    let relative = found.stdout.lines().map(|line| {
        let inside = Path::new(line).strip_prefix(directory).unwrap();
        inside.display().to_string()
    });
    relative.collect()
}

#[test]
fn shells_install_run_and_remove_floe() {
    let Some(served) = served() else { return };
    let script = served.scratch.join("install.sh");
    let script = script.to_str().unwrap();
    for shell in [&["dash"][..], &["bash", "--posix"], &["busybox", "sh"]] {
        if find_tool(shell[0], shell[0]).is_none() {
            continue;
        }
        let prefix = served.scratch.join("prefix");
        // A file of another program, and an empty directory, stay.
        fs::create_dir_all(prefix.join("bin")).unwrap();
        fs::create_dir_all(prefix.join("share")).unwrap();
        fs::write(prefix.join("bin/other"), "").unwrap();
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]).args([script, "--prefix"]);
        command.arg(&prefix);
        let (url, signer) = (served.server.url(), &served.signer);
        let installed = run(command.args(["--url", &url, "--signer", signer])).expect(0);
        assert!(installed.stderr.contains("Installed floe "));
        assert!(installed.stderr.contains("Add it to your PATH"));
        let floe = prefix.join("bin/floe");
        run(Command::new(&floe).arg("demo")).expect(0);
        let mut remove = Command::new(shell[0]);
        remove
            .args(&shell[1..])
            .args([script, "--uninstall", "--prefix"]);
        run(remove.arg(&prefix)).expect(0);
        let expected = ["bin", "bin/other", "share"].map(str::to_owned);
        assert_eq!(files_below(&prefix), expected.into(), "{shell:?}");
    }
}

#[test]
fn update_replaces_files_and_removes_those_that_are_gone() {
    let Some(served) = served() else { return };
    let prefix = served.scratch.join("prefix");
    served.install(&prefix).expect(0);
    let before = files_below(&prefix);
    fs::remove_file(served.release().join(served.tarball())).unwrap();
    make_tarball(&served.release(), "0.0.2", &["man", "new"]);
    served.sum_and_sign();
    served.install(&prefix).expect(0);
    let after = files_below(&prefix);
    assert!(after.contains("share/new/floe"), "{after:?}");
    let files = |all: &BTreeSet<String>| -> BTreeSet<String> {
        let is_file = |name: &&String| prefix.join(name).is_file();
        all.iter().filter(is_file).cloned().collect()
    };
    let expected = [
        "bin/floe",
        "share/doc/floe/examples/floe.service",
        "share/doc/floe/installed",
        "share/man/floe",
        "share/new/floe",
    ];
    assert_eq!(files(&after), expected.map(str::to_owned).into());
    assert_ne!(before, after);
    let mut remove = served.script(&["--uninstall", "--prefix"]);
    remove.arg(&prefix);
    run(&mut remove).expect(0);
    assert!(!prefix.exists());
    run(&mut remove)
        .expect(1)
        .stderr_contains("this script has installed none below");
}

/// Asserts that an install fails with a message, and that nothing is left of it.
#[track_caller]
fn assert_fails(served: &Served, message: &str) {
    let prefix = served.scratch.join("prefix");
    let temporary = served.scratch.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut script = served.script(&["--prefix"]);
    script.arg(&prefix).env("TMPDIR", &temporary);
    let ran = run(&mut script).expect(1);
    assert!(ran.stderr.contains(message), "{message}: {}", ran.stderr);
    assert!(!prefix.exists(), "{message}");
    assert_eq!(files_below(&temporary), BTreeSet::new(), "{message}");
}

#[test]
fn files_that_do_not_match_are_refused() {
    let Some(served) = served() else { return };
    let tarball = served.tarball();
    let (server, size) = (
        &served.server,
        fs::metadata(served.release().join(&tarball)).unwrap().len(),
    );
    for (suffix, fault, message) in [
        (
            &*tarball,
            Fault::OtherBody(b"other".to_vec()),
            "its SHA-256 is",
        ),
        (&tarball, Fault::ExtraBytes(vec![0]), "its SHA-256 is"),
        (&tarball, Fault::Truncated(1000), "cannot fetch"),
        (
            &tarball,
            Fault::ShortBody(size as usize - 1),
            "its SHA-256 is",
        ),
        (&tarball, Fault::Status(404), "cannot fetch"),
        ("SHA256SUMS", Fault::Reset, "cannot fetch"),
        (
            "SHA256SUMS",
            Fault::ExtraBytes(b"\n".to_vec()),
            "its signature is not",
        ),
        (
            "SHA256SUMS",
            Fault::OtherBody(Vec::new()),
            "its signature is not",
        ),
        ("SHA256SUMS.sig", Fault::Status(404), "cannot fetch"),
        (
            "SHA256SUMS.sig",
            Fault::OtherBody(b"x".to_vec()),
            "its signature is not",
        ),
    ] {
        let before = server.fault_count();
        server.fail(suffix, fault);
        assert_fails(&served, message);
        assert!(server.fault_count() > before, "{suffix}: no fault happened");
        server.clear_faults();
    }
    // The sums of an attacker, signed with another key.
    let other = self::served().unwrap();
    fs::copy(
        other.release().join("SHA256SUMS.sig"),
        served.release().join("SHA256SUMS.sig"),
    )
    .unwrap();
    assert_fails(&served, "its signature is not by the key of floe");
}

#[test]
fn full_disk_and_closed_directories_leave_nothing() {
    let Some(served) = served() else { return };
    // The binary of a debug build is larger than that of a release.
    let size = fs::metadata(served.release().join(served.tarball()))
        .unwrap()
        .len();
    let Some(disk) = mount(&format!("size={}k", size / 1024)) else {
        return;
    };
    let prefix = disk.mount_point().join("prefix");
    let mut script = served.script(&["--prefix"]);
    let ran = disk.run(script.arg(&prefix)).expect(1);
    assert!(
        ran.stderr.contains("No space left on device"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("nothing was changed"), "{}", ran.stderr);
    let left = disk.run(Command::new("ls").arg("-A").arg(disk.mount_point()));
    assert_eq!(left.stdout, "");
    let mut script = served.script(&["--prefix"]);
    script.arg(served.scratch.join("prefix"));
    let ran = disk.run(script.env("TMPDIR", disk.mount_point())).expect(1);
    assert!(
        ran.stderr.contains("see the message above"),
        "{}",
        ran.stderr
    );
    disk.remount("ro");
    let ran = disk.run(script.env("TMPDIR", disk.mount_point())).expect(1);
    assert!(ran.stderr.contains("try another TMPDIR"), "{}", ran.stderr);
    let mut script = served.script(&["--prefix"]);
    let ran = disk.run(script.arg(&prefix)).expect(1);
    assert!(ran.stderr.contains("try --prefix DIR"), "{}", ran.stderr);
}

#[test]
fn users_install_below_their_home() {
    let Some(served) = served() else { return };
    let Some(setpriv) = setpriv_to_nobody() else {
        return;
    };
    let home = served.scratch.join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
    let as_nobody = |options: &[&str], home: Option<&Path>| {
        let script = served.script(options);
        let mut command = Command::new(setpriv.get_program());
        command.args(setpriv.get_args()).arg(script.get_program());
        command.args(script.get_args());
        match home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        run(&mut command)
    };
    as_nobody(&[], Some(&home)).expect(0);
    run(Command::new(home.join(".local/bin/floe")).arg("--version")).expect(0);
    as_nobody(&["--uninstall"], Some(&home)).expect(0);
    assert_eq!(files_below(&home), BTreeSet::new());
    as_nobody(&[], None)
        .expect(1)
        .stderr_contains("HOME is not set; try --prefix DIR");
    as_nobody(&["--prefix", "/usr/local"], Some(&home))
        .expect(1)
        .stderr_contains("try --prefix DIR");
}

/// Links the programs of a small system into a directory: all but those that fetch or verify. Small
/// images have no `find`.
fn link_tools(bin: &Path) -> Option<()> {
    let tools = "cat cp cut dirname grep gzip head id mkdir mktemp mv rm rmdir sed sha256sum sort \
                 tail tar uname";
    for tool in tools.split_whitespace() {
        let place = find_tool(tool, "coreutils")?;
        std::os::unix::fs::symlink(place, bin.join(tool)).unwrap();
    }
    Some(())
}

#[test]
fn machines_without_a_package_and_without_tools_are_named() {
    let Some(served) = served() else { return };
    let bin = served.scratch.join("bin");
    fs::create_dir(&bin).unwrap();
    let uname = bin.join("uname");
    for (system, machine, message) in [
        ("Linux", "riscv64", "there is no package for riscv64"),
        ("Darwin", "arm64", "it runs on Linux only"),
    ] {
        let script = format!("#!/bin/sh\n[ \"$1\" = -s ] && echo {system} || echo {machine}\n");
        fs::write(&uname, script).unwrap();
        fs::set_permissions(&uname, fs::Permissions::from_mode(0o755)).unwrap();
        let mut script = served.script(&[]);
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        run(script.env("PATH", path))
            .expect(1)
            .stderr_contains(message);
    }
    fs::remove_file(&uname).unwrap();
    if link_tools(&bin).is_none() {
        return;
    }
    let shell = find_tool("sh", "dash").unwrap();
    let with_tools = |options: &[&str]| {
        let mut script = Command::new(&shell);
        script.arg(served.scratch.join("install.sh")).args(options);
        run(script.env("PATH", &bin))
    };
    let url = served.server.url();
    with_tools(&["--url", &url])
        .expect(1)
        .stderr_contains("there is neither curl nor wget; try --url DIRECTORY");
    let (prefix, release) = (served.scratch.join("few"), served.release());
    let from_directory = ["--url", release.to_str().unwrap(), "--prefix"];
    let install = || with_tools(&[&from_directory[..], &[prefix.to_str().unwrap()]].concat());
    install().expect(0);
    run(Command::new(prefix.join("bin/floe")).arg("--version")).expect(0);
    with_tools(&["--uninstall", "--prefix", prefix.to_str().unwrap()]).expect(0);
    assert!(!prefix.exists(), "{:?}", files_below(&prefix));
    fs::remove_file(bin.join("gzip")).unwrap();
    install()
        .expect(1)
        .stderr_contains("there is no gzip; try installing it");
    let script = served.scratch.join("install.sh");
    run(Command::new("sh").arg(&script))
        .expect(1)
        .stderr_contains("try --url URL");
    run(Command::new("sh").arg(&script).arg("--what"))
        .expect(1)
        .stderr_contains("try --help");
    run(Command::new("sh").arg(&script).arg("--url"))
        .expect(1)
        .stderr_contains("--url needs a value");
}

#[test]
fn root_installs_for_all_users_and_never_over_a_directory() {
    let Some(served) = served() else { return };
    let prefix = served.scratch.join("it's \"here\"");
    let install = || {
        let script = served.script(&["--prefix"]);
        let mut command = Command::new("sh");
        command.args(["-c", "umask 077 && exec sh \"$@\"", "sh"]);
        run(command.args(script.get_args()).arg(&prefix))
    };
    let installed = install().expect(0);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let binary = prefix.join("bin/floe");
    assert_eq!((mode(&binary), mode(&prefix)), (0o755, 0o755));
    // A shell understands the line for PATH.
    let line = installed
        .stderr
        .lines()
        .find_map(|line| line.split_once("PATH: "));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{}; command -v floe", line.unwrap().1)]);
    assert_eq!(
        run(&mut shell).expect(0).stdout.trim(),
        binary.to_str().unwrap()
    );
    fs::remove_file(&binary).unwrap();
    fs::create_dir(&binary).unwrap();
    install()
        .expect(1)
        .stderr_contains("bin/floe: it is a directory; try another --prefix");
    assert!(
        files_below(&prefix)
            .iter()
            .all(|file| !file.contains("floe-new"))
    );
}

#[test]
fn foreign_program_is_kept_and_the_unit_names_the_installed_one() {
    let Some(served) = served() else { return };
    let prefix = served.scratch.join("prefix");
    let floe = prefix.join("bin/floe");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::write(&floe, "another program").unwrap();
    served
        .install(&prefix)
        .expect(1)
        .stderr_contains("bin/floe: this script has not installed it; nothing was changed");
    assert_eq!(fs::read_to_string(&floe).unwrap(), "another program");
    let left = ["bin", "bin/floe"].map(str::to_owned);
    assert_eq!(files_below(&prefix), left.into());
    fs::remove_file(&floe).unwrap();
    // A link to nothing also belongs to another program.
    std::os::unix::fs::symlink("/nowhere", &floe).unwrap();
    served
        .install(&prefix)
        .expect(1)
        .stderr_contains("this script has not installed it");
    fs::remove_file(&floe).unwrap();
    served.install(&prefix).expect(0);
    let unit = fs::read_to_string(prefix.join("share/doc/floe/examples/floe.service")).unwrap();
    let start = format!("\nExecStart={} serve ", floe.display());
    assert!(unit.contains(&start), "{unit}");
}

#[test]
fn shellcheck_accepts_the_script() {
    let Some(shellcheck) = find_tool("shellcheck", "shellcheck") else {
        return skip("shellcheck", "not installed");
    };
    let script = repository().join("packaging/install.sh");
    run(Command::new(shellcheck).arg("--shell=sh").arg(script)).expect(0);
}
