//! A store with live paths, dead paths and all kinds of other files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use floe_format::Hash;
use floe_format::nar::write;
use floe_testkit::{Corpus, Nix, run};
use rustix::fs::{FlockOperation, flock};

use crate::support::floe;

/// The store, and the files that this process has locked in it.
pub(super) struct GarbageStore {
    pub(super) root: PathBuf,
    _locked: Vec<File>,
    /// A process whose environment names a path.
    process: Child,
}

impl Drop for GarbageStore {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl GarbageStore {
    /// Creates the store below `root`. Two calls create equal stores. Files whose names
    /// begin with `tmp-` are left out for Nix 2.8, which has no rule for them.
    pub(super) fn create(nix: &Nix, corpus: &Corpus, root: &Path) -> GarbageStore {
        let mut install = floe(["install", "--optimise", "--from", &corpus.file_url("zstd")]);
        install.args(["--trusted-public-keys", &corpus.key, "--root"]);
        run(install.arg(root).arg(&corpus.root)).expect(0);
        add_derivations(nix, root);
        let (store, state) = (root.join("nix/store"), root.join("nix/var/nix"));
        // A part of the closure lives.
        let kept = some_dependency(nix, corpus, root);
        symlink(&kept, state.join("gcroots/kept")).unwrap();
        symlink("/nowhere", state.join("gcroots/dangling")).unwrap();
        let odd = [corpus.paths[2].as_bytes(), b"/\xff"].concat();
        symlink(OsStr::from_bytes(&odd), state.join("gcroots/no-text")).unwrap();
        fs::create_dir_all(state.join("gcroots/auto")).unwrap();
        symlink("/nowhere/result", state.join("gcroots/auto/stale")).unwrap();
        add_unregistered(&store, &corpus.paths);
        // A valid path without files.
        let gone = corpus
            .paths
            .iter()
            .rev()
            .find(|path| **path != kept && **path != corpus.root);
        let gone = place(root, gone.unwrap());
        run(Command::new("chmod").args(["-R", "u+w"]).arg(&gone)).expect(0);
        run(Command::new("rm").arg("-r").arg(&gone)).expect(0);
        let mut locked = vec![add_temporary_roots(&store, &state, corpus)];
        if !nix.is_2_8() {
            locked.push(add_temporary_files(&store));
        }
        // Two stores shall have the same times.
        let touch = "find \"$0\" -maxdepth 1 -newermt @100 ! -path \"$0\" -exec touch -hd @1 {} +";
        run(Command::new("sh").args(["-c", touch]).arg(&store)).expect(0);
        // A path that only a process names. Other stores on this machine do not have it.
        let file = root.join("named-by-a-process");
        fs::write(&file, "named").unwrap();
        let named = nix.store(root, ["--add".as_ref(), file.as_os_str()]);
        let mut process = Command::new("sleep");
        process
            .arg("1000")
            .env("NAMED", format!("x:{}/lib", named.trim()));
        GarbageStore {
            root: root.to_path_buf(),
            _locked: locked,
            process: process.stdin(Stdio::null()).spawn().unwrap(),
        }
    }
}

/// The place of a path on disk.
pub(super) fn place(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Returns a path that has references and is not the whole closure.
fn some_dependency(nix: &Nix, corpus: &Corpus, root: &Path) -> String {
    let closure = |path: &str| nix.store(root, ["-qR", path]).lines().count();
    let all = corpus.paths.len();
    let mut paths = corpus.paths.iter();
    let found = paths.find(|path| (2..all / 2).contains(&closure(path)));
    found.unwrap().clone()
}

/// Adds three derivations, of which each needs the one before. The second one's output lives.
fn add_derivations(nix: &Nix, root: &Path) {
    let text = "let d = name: dep: derivation { inherit name dep; system = \"x86_64-linux\"; \
                builder = \"/bin/sh\"; outputs = [ \"out\" \"doc\" ]; }; \
                a = d \"a\" null; b = d \"b\" a.doc; in [ a b (d \"c\" b) ]";
    let mut command = nix.command("nix-instantiate", ["--store"]);
    let made = run(command.arg(root).args(["-E", text])).expect(0);
    let derivations: Vec<String> = made.stdout.lines().map(|it| it.trim().to_owned()).collect();
    assert_eq!(derivations.len(), 3, "{}", made.stdout);
    for derivation in &derivations {
        let derivation = derivation.split('!').next().unwrap();
        let outputs = nix.store(root, ["-q", "--outputs", derivation]);
        for output in outputs.lines() {
            fs::write(place(root, output), derivation).unwrap();
            register(root, output, derivation);
        }
    }
    let kept = nix.store(
        root,
        ["-q", "--outputs", derivations[1].split('!').next().unwrap()],
    );
    let kept = kept.lines().next().unwrap();
    symlink(kept, root.join("nix/var/nix/gcroots/output")).unwrap();
}

/// Writes the row of a file that the builder of a derivation would have made.
fn register(root: &Path, output: &str, deriver: &str) {
    let contents = fs::read(place(root, output)).unwrap();
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::begin_file(&mut nar, false, contents.len() as u64);
    nar.extend(&contents);
    write::end_file(&mut nar, contents.len() as u64);
    let hash = Hash::sha256(floe_hash::sha256(&nar)).to_base16();
    let database = root.join("nix/var/nix/db/db.sqlite");
    let database = rusqlite::Connection::open(database).unwrap();
    let insert = "insert into ValidPaths (path, hash, registrationTime, deriver, narSize) \
                  values (?, ?, 1, ?, ?)";
    let row = (output, hash, deriver, nar.len() as i64);
    database.execute(insert, row).unwrap();
}

/// Adds files that are not valid paths.
fn add_unregistered(store: &Path, paths: &[String]) {
    for name in ["junk", ".hidden", "-", "trash"] {
        fs::write(store.join(name), "junk").unwrap();
    }
    symlink("/etc", store.join("outside")).unwrap();
    symlink("circle", store.join("circle")).unwrap();
    fs::create_dir_all(store.join("foreign/deep/deeper")).unwrap();
    fs::write(store.join("foreign/deep/deeper/file"), "foreign").unwrap();
    symlink("../../..", store.join("foreign/deep/up")).unwrap();
    fs::create_dir_all(store.join("foreign").join("d/".repeat(300))).unwrap();
    fs::create_dir(store.join(format!("{}-invalid", "1".repeat(32)))).unwrap();
    let name = paths[0].rsplit('/').next().unwrap();
    fs::write(store.join(format!("{name}.lock")), "").unwrap();
}

/// Adds the temporary roots of two paths. One of them is not valid. Returns the locked file.
fn add_temporary_roots(store: &Path, state: &Path, corpus: &Corpus) -> File {
    let building = format!("{}-building", "2".repeat(32));
    for suffix in ["", ".lock", ".chroot"] {
        fs::create_dir(store.join(format!("{building}{suffix}"))).unwrap();
    }
    let temporary = state.join("temproots");
    let live = temporary.join(format!("{}-live", std::process::id()));
    let used = &corpus.paths[corpus.paths.len() / 2];
    fs::write(&live, format!("/nix/store/{building}\0{used}\0")).unwrap();
    fs::write(temporary.join("4000000"), format!("{}\0", corpus.paths[1])).unwrap();
    // Old versions of Nix hold their roots with a shared lock.
    lock(&live, FlockOperation::LockShared)
}

/// Adds a file and two directories named as Nix names its temporary directories. Returns the lock
/// of the second directory.
fn add_temporary_files(store: &Path) -> File {
    fs::write(store.join("tmp-file"), "junk").unwrap();
    let [unused, used] = ["tmp-1-unused", "tmp-2-locked"].map(|name| store.join(name));
    for directory in [&unused, &used] {
        fs::create_dir(directory).unwrap();
    }
    lock(&used, FlockOperation::LockExclusive)
}

fn lock(path: &Path, operation: FlockOperation) -> File {
    let file = File::open(path).unwrap();
    flock(&file, operation).unwrap();
    file
}
