//! Errors that a file system reports only when a file is closed, as NFS, FUSE and quotas do.
//! strace makes the system calls fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_format::{NarInfo, StoreDir};
use floe_testkit::{CommandOutput, Corpus, Scratch, corpus, find_tool, nixes, run, scratch};

use super::temporary_entries;
use crate::support::{floe, floe_with_time_limit};

struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
    root: PathBuf,
}

fn fixture() -> Option<Fixture> {
    find_tool("strace", "strace")?;
    let (corpus, scratch) = (corpus("jq")?, scratch());
    let root = scratch.join("root");
    Some(Fixture {
        corpus,
        scratch,
        root,
    })
}

impl Fixture {
    /// An install from the corpus into the root.
    fn install(&self, options: &[&str]) -> Command {
        self.install_from(&self.corpus.file_url("zstd"), options)
    }

    fn install_from(&self, from: &str, options: &[&str]) -> Command {
        let mut command = floe(["install", "--from", from, "--root"]);
        command.arg(&self.root).args(options);
        command.args(["--trusted-public-keys", &self.corpus.key, &self.corpus.root]);
        command
    }

    /// Runs a command of which some calls of close(2) fail. Asserts that this happened to a file
    /// whose path contains `part`.
    fn run_with_failing_closes(
        &self,
        command: &Command,
        injection: &[&str],
        part: &str,
    ) -> CommandOutput {
        let ran = self.run_with_strace(command, injection);
        assert!(self.has_failed(part), "no close failed: {}", ran.stderr);
        ran
    }

    /// Runs a command again and again, so that each of its calls of close(2) fails in one run, and
    /// removes the file or directory `made` before each run. Calls `check` for each run with a
    /// failed close of a file whose path contains `part`.
    fn fail_each_close(
        &self,
        command: &Command,
        (part, made): (&str, &Path),
        check: impl Fn(CommandOutput),
    ) {
        let mut runs = 0;
        for n in FIRST_CLOSE..FIRST_CLOSE + CLOSES {
            remove(made);
            let injection = format!("inject=close:error=EDQUOT:when={n}+{CLOSES}");
            let ran = self.run_with_strace(command, &["-e", &injection]);
            if self.has_failed(part) {
                runs += 1;
                check(ran);
            }
        }
        assert!(runs > 0, "no close of a file with {part} failed");
    }

    fn run_with_strace(&self, command: &Command, injection: &[&str]) -> CommandOutput {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-qq", "-e", "signal=none", "-e", "trace=close"]);
        strace.args(injection).arg("-o").arg(self.log());
        strace.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => strace.env(name, value),
                None => strace.env_remove(name),
            };
        }
        run(&mut strace)
    }

    fn log(&self) -> PathBuf {
        self.scratch.join("strace.log")
    }

    /// Whether a close of a file whose path contains `part` failed in the last run.
    fn has_failed(&self, part: &str) -> bool {
        let log = fs::read_to_string(self.log()).unwrap();
        let is_hit = |line: &str| line.contains(part) && line.contains("(INJECTED)");
        log.lines().any(is_hit)
    }

    /// Asserts that the store of a failed install has only whole paths, and not all of them, and
    /// that the next install completes it.
    fn assert_whole_and_incomplete(&self, options: &[&str]) {
        // A failed install leaves no empty store.
        if self.root.join("nix").exists() {
            let verified = run(floe(["verify", "--json", "--store"]).arg(&self.root));
            let valid = verified.expect(0).json()["paths"].as_u64().unwrap() as usize;
            assert!(
                valid < self.corpus.paths.len(),
                "{options:?}: all are valid"
            );
            for nix in nixes() {
                nix.verify(&self.root, valid);
            }
        }
        run(&mut self.install(options)).expect(0);
        for nix in nixes() {
            nix.verify(&self.root, self.corpus.paths.len());
        }
    }
}

/// Many files of a tree fail, and few other descriptors.
const FILES: [&str; 2] = ["-e", "inject=close:error=EDQUOT:when=100+7"];

#[test]
fn install_with_errors_of_close_registers_no_damaged_path() {
    let Some(mut fixture) = fixture() else { return };
    let previous = fixture.scratch.join("previous");
    run(&mut fixture.install(&[])).expect(0);
    fs::rename(&fixture.root, &previous).unwrap();
    let previous = previous.display().to_string();
    let cases: [&[&str]; 6] = [
        &[],
        &["--optimise"],
        &["--reuse", &previous, "--reuse-by", "reflink"],
        &["--reuse", &previous, "--reuse-by", "copy", "--optimise"],
        &["--option", "fsync-store-paths", "true"],
        &["--option", "sync-before-registering", "true"],
    ];
    for (number, options) in cases.into_iter().enumerate() {
        fixture.root = fixture.scratch.join(&format!("root-{number}"));
        let command = fixture.install(options);
        let ran = fixture.run_with_failing_closes(&command, &FILES, "-floe-");
        ran.expect(5)
            .stderr_contains("cannot write ")
            .stderr_contains("quota exceeded");
        let left = temporary_entries(&fixture.root.join("nix/store"));
        assert_eq!(left, [""; 0], "{options:?}");
        fixture.assert_whole_and_incomplete(options);
    }
}

#[test]
fn install_with_io_error_of_close_fails() {
    let Some(fixture) = fixture() else { return };
    let injection = ["-e", "inject=close:error=EIO:when=100+7"];
    let command = fixture.install(&[]);
    let ran = fixture.run_with_failing_closes(&command, &injection, "-floe-");
    ran.expect(1).stderr_contains("Input/output error");
    fixture.assert_whole_and_incomplete(&[]);
}

/// Linux closes a file also if a signal interrupts close(2), so the contents are complete.
#[test]
fn interrupted_close_is_no_error() {
    let Some(fixture) = fixture() else { return };
    let injection = ["-e", "inject=close:error=EINTR:when=100+7"];
    let command = fixture.install(&[]);
    fixture
        .run_with_failing_closes(&command, &injection, "-floe-")
        .expect(0);
    for nix in nixes() {
        nix.verify(&fixture.root, fixture.corpus.paths.len());
    }
}

/// The schema file and the record of synced rows are small, and a damaged one makes a store
/// unusable or distrusted.
#[test]
fn error_of_close_of_the_sync_record_fails_the_install() {
    let Some(fixture) = fixture() else { return };
    let database = fixture.root.join("nix/var/nix/db");
    let record = database.join("floe-sync-record.tmp");
    let place = record.display().to_string();
    let injection = ["-P", &place, "-e", "inject=close:error=EDQUOT"];
    let command = fixture.install(&[]);
    let ran = fixture.run_with_failing_closes(&command, &injection, "floe-sync-record.tmp");
    ran.expect(5).stderr_contains("floe-sync-record");
    assert!(!record.exists());
    fixture.assert_whole_and_incomplete(&[]);
}

#[test]
fn key_whose_file_fails_at_the_close_is_an_error() {
    let Some(fixture) = fixture() else { return };
    let file = fixture.scratch.join("key");
    let place = file.display().to_string();
    let injection = ["-P", &place, "-e", "inject=close:error=ENOSPC"];
    let redirect = "exec \"$0\" key generate test-1 > \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", redirect, env!("CARGO_BIN_EXE_floe"), &place]);
    let ran = fixture.run_with_failing_closes(&command, &injection, "/key>");
    ran.expect(5)
        .stderr_contains("cannot write the result to stdout: No space left on device");
}

#[test]
fn reports_and_traces_that_fail_at_the_close_are_errors() {
    let Some(fixture) = fixture() else { return };
    let trace = fixture.scratch.join("trace");
    let place = trace.display().to_string();
    let injection = ["-P", &place, "-e", "inject=close:error=EDQUOT"];
    let command = fixture.install(&["--trace", &place]);
    let ran = fixture.run_with_failing_closes(&command, &injection, "/trace>");
    ran.expect(0)
        .stderr_contains("ending the trace early")
        .stderr_contains("quota exceeded");

    let page = fixture.scratch.join("man/floe.1");
    let place = page.display().to_string();
    let injection = ["-P", &place, "-e", "inject=close:error=EDQUOT"];
    let directory = page.parent().unwrap().display().to_string();
    let command = floe(["man", &directory]);
    let ran = fixture.run_with_failing_closes(&command, &injection, "/floe.1>");
    ran.expect(1).stderr_contains("quota exceeded");
}

#[test]
fn cache_with_errors_of_close_publishes_no_damaged_path() {
    let Some(fixture) = fixture() else { return };
    let target = fixture.scratch.join("target");
    let parameters = "compression=none&write-nar-listing=true";
    let to = format!("file://{}?{parameters}", target.display());
    let mut command = floe(["copy", "--from", &fixture.corpus.file_url("zstd"), "--to"]);
    command.args([&to, "--no-check-sigs", &fixture.corpus.root]);
    fixture.fail_each_close(&command, ("/.floe-", &target), |ran| {
        ran.expect(5).stderr_contains("quota exceeded");
        assert_published_paths_are_whole(&target);
    });
    remove(&target);
    run(&mut command).expect(0);
    let from = format!("file://{}", target.display());
    run(&mut fixture.install_from(&from, &[])).expect(0);
    for nix in nixes() {
        nix.verify(&fixture.root, fixture.corpus.paths.len());
    }
}

#[test]
fn schema_file_that_fails_at_the_close_makes_no_store() {
    let Some(fixture) = fixture() else { return };
    let database = fixture.root.join("nix/var/nix/db");
    let command = fixture.install(&[]);
    fixture.fail_each_close(&command, ("/db/schema-", &fixture.root), |ran| {
        ran.expect(5).stderr_contains("/db/schema");
        let names = fs::read_dir(&database).into_iter().flatten();
        let mut names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
        assert!(!names.any(|name| name.starts_with("schema")));
    });
}

#[test]
fn login_file_that_fails_at_the_close_is_not_made() {
    let Some(fixture) = fixture() else { return };
    let file = fixture.scratch.join("logins");
    let mut command = floe(["serve", "auth", "add-token", "--auth-file"]);
    command.arg(&file).arg("alice");
    fixture.fail_each_close(&command, ("/.floe-logins-", &file), |ran| {
        ran.expect(1).stderr_contains("quota exceeded");
        assert!(!file.exists());
    });
}

#[test]
fn server_whose_pid_file_fails_at_the_close_does_not_start() {
    let Some(fixture) = fixture() else { return };
    let file = fixture.scratch.join("pid");
    let place = file.display().to_string();
    let injection = ["-P", &place, "-e", "inject=close:error=EDQUOT"];
    let command = ["nix-serve", "--listen", "127.0.0.1:0", "--pid", &place];
    let command = floe_with_time_limit(command);
    let ran = fixture.run_with_failing_closes(&command, &injection, "/pid>");
    ran.expect(1).stderr_contains("quota exceeded");
    assert!(!file.exists());
}

/// The close of a directory that was only read loses nothing.
#[test]
fn error_of_close_of_a_listed_directory_is_no_error() {
    let Some(fixture) = fixture() else { return };
    run(&mut fixture.install(&["--optimise"])).expect(0);
    let root = fixture.root.display().to_string();
    for (arguments, place) in [
        (&["verify", "--store", &root][..], "nix/store/.links"),
        (&["gc", "--store", &root], "nix/store"),
    ] {
        let place = fixture.root.join(place).display().to_string();
        let injection = ["-P", &place, "-e", "inject=close:error=EDQUOT"];
        let ran = fixture.run_with_failing_closes(&floe(arguments), &injection, &place);
        ran.expect(0);
    }
}

/// The distance of the failures of one thread. The first calls are those of the dynamic loader.
const CLOSES: u32 = 12;
const FIRST_CLOSE: u32 = 5;

fn remove(made: &Path) {
    if made.is_dir() {
        fs::remove_dir_all(made).unwrap()
    } else {
        _ = fs::remove_file(made);
    }
}

/// Asserts that a cache has no temporary file, and the whole NAR of each narinfo.
fn assert_published_paths_are_whole(cache: &Path) {
    let names = |directory: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(directory).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    for directory in [cache, &cache.join("nar")] {
        let temporary = |name: &String| name.ends_with(".tmp");
        assert!(!names(directory).iter().any(temporary), "{directory:?}");
    }
    for name in names(cache) {
        if name.ends_with(".narinfo") {
            let text = fs::read(cache.join(&name)).unwrap();
            let narinfo = NarInfo::parse(&text, &StoreDir::default()).unwrap();
            let len = fs::metadata(cache.join(&narinfo.url)).unwrap().len();
            assert_eq!(narinfo.file_size, Some(len), "{name}");
        }
    }
}
