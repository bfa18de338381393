//! Access to the binary under test and to the reference tools: corpora, Nix and nginx.
//!
//! `cargo xtask test` prepares the reference tools and passes their locations in `FLOE_TEST_*`.
//! If one is missing, the test records that in the skips file. xtask prints all skips, and fails
//! on them in CI.

#[path = "support/nginx.rs"]
pub(crate) mod nginx;

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

pub(crate) use self::nginx::nginx;

/// Returns a command that runs the binary under test.
pub(crate) fn floe<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let Some(program) = option_env!("CARGO_BIN_EXE_floe") else {
        panic!("this test program has no floe binary");
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    // A server of another test may have had the same port, so its cached narinfos must not be
    // found.
    command.env("XDG_CACHE_HOME", "/dev/null");
    isolate(&mut command);
    command
}

/// Hides the machine's and the user's nix.conf from a command that names no other.
fn isolate(command: &mut Command) {
    let set: Vec<OsString> = command.get_envs().map(|(name, _)| name.into()).collect();
    let is_set = |name: &str| set.iter().any(|set| set == name);
    if !is_set("NIX_CONF_DIR") {
        command.env("NIX_CONF_DIR", "/nonexistent/nix");
    }
    if !is_set("NIX_USER_CONF_FILES") {
        command.env("NIX_USER_CONF_FILES", "");
    }
    for name in ["NIX_CONFIG", "NIX_REMOTE"] {
        if !is_set(name) {
            command.env_remove(name);
        }
    }
}

/// Exit code and output of a finished command, for assertions.
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    line: String,
}

/// Runs a command to completion.
pub(crate) fn run(command: &mut Command) -> CommandOutput {
    let line = format!("{command:?}");
    isolate(command);
    let output: Output = command
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        line,
    }
}

impl CommandOutput {
    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> CommandOutput {
        let CommandOutput {
            line,
            stdout,
            stderr,
            ..
        } = &self;
        assert_eq!(
            self.code,
            Some(code),
            "{line}\nstdout: {stdout}\nstderr: {stderr}"
        );
        self
    }

    /// Asserts that stderr contains `part`.
    #[track_caller]
    pub(crate) fn stderr_contains(self, part: &str) -> CommandOutput {
        assert!(
            self.stderr.contains(part),
            "{}\nlacks {part:?}: {}",
            self.line,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.line, self.stdout))
    }
}

/// A closure in signed binary caches, which real Nix made from Debian packages.
pub(crate) struct Corpus {
    pub(crate) dir: PathBuf,
    pub(crate) root: String,
    pub(crate) key: String,
    pub(crate) paths: Vec<String>,
}

/// Returns the corpus `name`. If it is missing, records a skip and returns `None`.
pub(crate) fn corpus(name: &str) -> Option<Corpus> {
    let base = std::env::var_os("FLOE_TEST_CORPORA").map(PathBuf::from);
    // Corpora that were made by hand may use the package's short name.
    let names = [name, name.trim_end_matches("-esr")];
    let dirs = base
        .iter()
        .flat_map(|base| names.map(|name| base.join(name)));
    let dir = dirs.into_iter().find(|dir| dir.join("stats.json").exists());
    let Some(dir) = dir else {
        skip(
            &format!("corpus {name}"),
            "not made; run `cargo xtask test`",
        );
        return None;
    };
    let read = |file: &str| {
        fs::read_to_string(dir.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    let (root, key) = (read("root-path"), read("key.pub"));
    let paths = read("paths").lines().map(str::to_owned).collect();
    Some(Corpus {
        root,
        key,
        paths,
        dir,
    })
}

/// Returns the corpora of this run: small ones always, a large one in full runs.
pub(crate) fn corpora() -> Vec<Corpus> {
    let mut names = vec!["jq", "curl"];
    if std::env::var_os("FLOE_TEST_FULL").is_some() {
        names.push("firefox-esr");
    }
    names.into_iter().filter_map(corpus).collect()
}

impl Corpus {
    /// Returns the `file://` URL of the cache with this compression.
    pub(crate) fn file_url(&self, compression: &str) -> String {
        format!("file://{}", self.cache(compression).display())
    }

    pub(crate) fn cache(&self, compression: &str) -> PathBuf {
        self.dir.join(format!("cache-{compression}"))
    }

    /// Copies one of the caches to `to/cache`, where a test may modify it.
    pub(crate) fn cache_copy(&self, compression: &str, to: &Path) -> PathBuf {
        let copy = to.join("cache");
        copy_tree(&self.cache(compression), &copy);
        copy
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.join("store")
    }
}

/// Copies a tree of plain files, without their modes.
pub(crate) fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::write(&target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// Copies an executable.
///
/// `cp` does it in another process. If this process had the copy open for writing while another
/// test forked, the child would inherit the descriptor, and running the copy would fail with
/// `ETXTBSY`.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    run(command.arg("--preserve=mode").args([from, to])).expect(0);
}

/// An installed Nix.
pub(crate) struct Nix {
    bin: PathBuf,
    config: tempfile::TempDir,
    pub(crate) version: String,
}

/// Returns every installed Nix: the system's and, if it was unpacked, the newest release. If there
/// is none, records a skip.
pub(crate) fn nixes() -> Vec<Nix> {
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
        let text = "sandbox = false\nbuild-users-group =\nsubstituters =\n\
                    experimental-features = nix-command\n";
        fs::write(config.path().join("nix.conf"), text).unwrap();
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
    /// Returns a command of this Nix, such as `nix-store`. Each command gets empty client caches.
    pub(crate) fn command<S: AsRef<OsStr>>(
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
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.bin.join(tool).exists()
    }

    /// Runs `nix-store --store ROOT …`, asserts success and returns stdout.
    #[track_caller]
    pub(crate) fn store<S: AsRef<OsStr>>(
        &self,
        root: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> String {
        let mut command = self.command("nix-store", [OsStr::new("--store"), root.as_os_str()]);
        run(command.args(args)).expect(0).stdout
    }

    /// Asserts that this Nix finds no fault in a store with at least `paths` valid paths.
    #[track_caller]
    pub(crate) fn verify(&self, root: &Path, paths: usize) {
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
    pub(crate) fn path_infos(&self, store: &str, root: &str) -> Vec<Value> {
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

/// Records that a reference tool is missing.
#[expect(
    clippy::print_stderr,
    reason = "skips must be visible even without a skips file"
)]
pub(crate) fn skip(name: &str, why: &str) {
    eprintln!("SKIPPED: {name}: {why}");
    if let Some(file) = std::env::var_os("FLOE_TEST_SKIPS") {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .unwrap();
        writeln!(file, "{name}: {why}").unwrap();
    }
}

/// Lists every file below `root/nix/store` with mode, owner, modification time and contents.
pub(crate) fn tree(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    list(&root.join("nix/store"), Path::new(""), &mut lines);
    lines.sort();
    assert!(!lines.is_empty(), "{} is empty", root.display());
    lines
}

fn list(base: &Path, relative: &Path, lines: &mut Vec<String>) {
    use std::os::unix::fs::MetadataExt as _;
    for entry in fs::read_dir(base.join(relative)).unwrap() {
        let name = relative.join(entry.unwrap().file_name());
        // Nix creates `.links` for --optimise, so its modification time is arbitrary.
        if name == Path::new(".links") {
            continue;
        }
        let path = base.join(&name);
        let stat = fs::symlink_metadata(&path).unwrap();
        let contents = if stat.is_file() {
            floe_hash::sha256(&fs::read(&path).unwrap())
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect()
        } else if stat.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            String::new()
        };
        lines.push(format!(
            "{} {:o} {}:{} {} {contents}",
            name.display(),
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.mtime()
        ));
        if stat.is_dir() {
            list(base, &name, lines);
        }
    }
}

/// A temporary directory that is removed even if it contains sealed (read-only) stores.
pub(crate) struct Scratch(PathBuf);

/// Creates a temporary directory.
pub(crate) fn scratch() -> Scratch {
    let dir = tempfile::tempdir().unwrap().keep();
    Scratch(fs::canonicalize(dir).unwrap())
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _: Result<(), floe_store::StoreError> = floe_store::tree::remove_tree(&self.0);
    }
}
