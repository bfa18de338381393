//! The installed versions of Nix, to compare floe with.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::command::run;
use crate::skip::skip;

/// An installed Nix.
pub struct Nix {
    bin: PathBuf,
    config: tempfile::TempDir,
    /// The output of `nix --version`.
    pub version: String,
}

/// Returns every installed Nix: the system's and, if it was unpacked, the newest release. If there
/// is none, records a skip.
pub fn nixes() -> Vec<Nix> {
    let newest = std::env::var_os("FLOE_TEST_NEWER_NIX").map(|dir| PathBuf::from(dir).join("bin"));
    let found: Vec<Nix> = [Some(PathBuf::from("/usr/bin")), newest]
        .into_iter()
        .flatten()
        .filter_map(nix_in)
        .collect();
    if found.is_empty() {
        skip(
            "nix-bin",
            "no /usr/bin/nix-store; run `cargo xtask test` as root",
        );
    }
    found
}

fn nix_in(bin: PathBuf) -> Option<Nix> {
    bin.join("nix-store").exists().then(|| {
        let config = tempfile::tempdir().unwrap();
        fs::write(config.path().join("nix.conf"), NIX_CONF).unwrap();
        let mut nix = Nix {
            bin,
            config,
            version: String::new(),
        };
        let version = run(&mut nix.command("nix", ["--version"])).expect(0).stdout;
        nix.version = version.trim().to_owned();
        nix
    })
}

impl Nix {
    /// Returns whether this is Nix 2.8, which Debian 12 has.
    pub fn is_2_8(&self) -> bool {
        self.version.contains(" 2.8.")
    }

    /// Returns a command of this Nix, such as `nix-store`. Each command gets empty client caches.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        tool: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        static CACHES: AtomicU32 = AtomicU32::new(0);
        let cache = format!("cache-{}", CACHES.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(self.bin.join(tool));
        command
            .args(args)
            .stdin(Stdio::null())
            .env("NIX_REMOTE", "local")
            .env("NIX_CONF_DIR", self.config.path())
            .env("HOME", self.config.path())
            .env("XDG_CACHE_HOME", self.config.path().join(cache));
        command
    }

    /// Returns whether this Nix includes the program `tool`.
    pub fn has(&self, tool: &str) -> bool {
        self.program(tool).exists()
    }

    /// Returns the file of a program.
    pub fn program(&self, tool: &str) -> PathBuf {
        self.bin.join(tool)
    }

    /// Returns the text of a nix.conf with further lines.
    pub(crate) fn conf_with(&self, settings: &str) -> String {
        format!("{NIX_CONF}{settings}\n")
    }

    /// Runs `nix-store --store ROOT …`, asserts success and returns stdout.
    #[track_caller]
    pub fn store<S: AsRef<OsStr>>(&self, root: &Path, args: impl IntoIterator<Item = S>) -> String {
        let mut command = self.command("nix-store", [OsStr::new("--store"), root.as_os_str()]);
        run(command.args(args)).expect(0).stdout
    }

    /// Asserts that this Nix finds no fault in a store with at least `paths` valid paths.
    #[track_caller]
    pub fn verify(&self, root: &Path, paths: usize) {
        let mut command = self.command("nix-store", [OsStr::new("--store"), root.as_os_str()]);
        let ran = run(command.args(["--verify", "--check-contents"])).expect(0);
        // `nix-store --verify` repairs some faults, exits with 0, and only prints one of these
        // words.
        for fault in ["disappeared", "modified", "fixing", "updating size"] {
            assert!(
                !ran.stderr.contains(fault),
                "{}: {}",
                self.version,
                ran.stderr
            );
        }
        let dump = self.store(root, ["--dump-db"]);
        let valid = dump
            .lines()
            .filter(|line| line.starts_with("/nix/store/"))
            .count();
        assert!(
            valid >= paths,
            "{}: {valid} lines name a path, not {paths}",
            self.version
        );
    }

    /// Returns `nix path-info --json -r`, sorted by path and without registration times.
    #[track_caller]
    pub fn path_infos(&self, store: &str, root: &str) -> Vec<Value> {
        let args = ["path-info", "--json", "-r", "--store", store, root];
        let json = run(&mut self.command("nix", args)).expect(0).json();
        let mut infos: Vec<Value> = match json {
            Value::Array(infos) => infos,
            Value::Object(infos) => infos
                .into_iter()
                .map(|(path, mut info)| {
                    info["path"] = path.into();
                    info
                })
                .collect(),
            other => panic!("not path infos: {other}"),
        };
        for info in &mut infos {
            info.as_object_mut().unwrap().remove("registrationTime");
        }
        infos.sort_by_key(|info| info["path"].to_string());
        infos
    }
}

/// The settings of each Nix: no builds in sandboxes, no other users, no caches.
const NIX_CONF: &str = "sandbox = false\nbuild-users-group =\nsubstituters =\n\
                        experimental-features = nix-command\n";
