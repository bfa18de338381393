//! What the tests stand on: the binary, real corpora, the real Nix, a real nginx.
//!
//! `cargo xtask test` prepares them and says where they are through `FLOE_TEST_*`. A test whose
//! reference tool is absent says so in the file of skips; xtask shows those loudly, and fails in
//! CI.

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

/// A command that runs the binary under test.
pub(crate) fn floe<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    // Tests of the library share this file, and have no binary.
    let Some(program) = option_env!("CARGO_BIN_EXE_floe") else {
        panic!("only tests of the binary run it");
    };
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    // Nothing is remembered from one test for another, whose server may have the same port.
    command.env("XDG_CACHE_HOME", "/dev/null");
    isolate(&mut command);
    command
}

/// Keeps the nix.conf of the machine and of the user away from a command that names no other.
fn isolate(command: &mut Command) {
    let said: Vec<OsString> = command.get_envs().map(|(name, _)| name.into()).collect();
    let is_said = |name: &str| said.iter().any(|said| said == name);
    if !is_said("NIX_CONF_DIR") {
        command.env("NIX_CONF_DIR", "/nonexistent/nix");
    }
    if !is_said("NIX_USER_CONF_FILES") {
        command.env("NIX_USER_CONF_FILES", "");
    }
    for name in ["NIX_CONFIG", "NIX_REMOTE"] {
        if !is_said(name) {
            command.env_remove(name);
        }
    }
}

/// Output of a command, readable in a failed assertion.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    line: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let line = format!("{command:?}");
    isolate(command);
    let output: Output = command
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        line,
    }
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Ran {
        let Ran {
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

    /// Asserts that stderr says something.
    #[track_caller]
    pub(crate) fn says(self, part: &str) -> Ran {
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

/// A real closure with signed caches, made by the real Nix from Debian packages.
pub(crate) struct Corpus {
    pub(crate) dir: PathBuf,
    pub(crate) root: String,
    pub(crate) key: String,
    pub(crate) paths: Vec<String>,
}

/// The corpus of that name; `None`, and a note among the skips, if it was not made.
pub(crate) fn corpus(name: &str) -> Option<Corpus> {
    let base = std::env::var_os("FLOE_TEST_CORPORA").map(PathBuf::from);
    // Corpora that a developer brought along may have the package's short name.
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

/// The corpora that this run is for: small ones always, a large one in full runs.
pub(crate) fn corpora() -> Vec<Corpus> {
    let mut names = vec!["jq", "curl"];
    if std::env::var_os("FLOE_TEST_FULL").is_some() {
        names.push("firefox-esr");
    }
    names.into_iter().filter_map(corpus).collect()
}

impl Corpus {
    /// The `file://` URL of one of its caches.
    pub(crate) fn file_url(&self, compression: &str) -> String {
        format!("file://{}", self.cache(compression).display())
    }

    pub(crate) fn cache(&self, compression: &str) -> PathBuf {
        self.dir.join(format!("cache-{compression}"))
    }

    /// A copy of one of its caches that a test may change.
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

/// Copies a program that is to be run.
///
/// Another process does it: a child that another test starts meanwhile would hold a file open that
/// this process writes, and nobody may run a program that is open for writing.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    run(command.arg("--preserve=mode").args([from, to])).expect(0);
}

/// A real Nix.
pub(crate) struct Nix {
    bin: PathBuf,
    config: tempfile::TempDir,
    pub(crate) version: String,
}

/// Every real Nix at hand: the system's and, where it was unpacked, the newest. Empty, and a
/// note among the skips, if there is none.
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
    /// A command of this Nix, such as `nix-store`, with fresh client caches of its own.
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

    /// Whether that tool was unpacked with this Nix.
    pub(crate) fn has(&self, tool: &str) -> bool {
        self.bin.join(tool).exists()
    }

    /// `nix-store --store ROOT …`, which must succeed.
    #[track_caller]
    pub(crate) fn store<S: AsRef<OsStr>>(
        &self,
        root: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> String {
        let mut command = self.command("nix-store", [OsStr::new("--store"), root.as_os_str()]);
        run(command.args(args)).expect(0).stdout
    }

    /// Asserts that this Nix finds nothing wrong in a store, and how many paths are in it.
    #[track_caller]
    pub(crate) fn verify(&self, root: &Path, paths: usize) {
        let mut command = self.command("nix-store", [OsStr::new("--store"), root.as_os_str()]);
        let ran = run(command.args(["--verify", "--check-contents"])).expect(0);
        // It repairs some faults in silence but for a line, and then exits with 0.
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

    /// `nix path-info --json -r`, by path and without registration times.
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

/// Says that a reference tool is absent.
#[expect(
    clippy::print_stderr,
    reason = "where nobody gathers the skips, they are still seen"
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

/// Every file below a store directory: its name, kind, mode, owner, times and contents.
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
        // Nix's own directory for --optimise; its time is when it was made.
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

/// A directory for a test whose stores are sealed: removed in spite of that.
pub(crate) struct Scratch(PathBuf);

/// Makes a directory of one's own.
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
