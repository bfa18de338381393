//! Rows of the database that do not parse. No command stops at them, a collection keeps what they
//! name, and `floe verify --repair` removes or replaces them.

mod kinds;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use floe_testkit::http_client::hash_part;
use floe_testkit::{
    CommandOutput, Corpus, Scratch, corpus, nixes, ran_in_pid_namespace, run, scratch,
};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::server_process::ServerProcess;
use crate::support::floe;
use kinds::{Class, DAMAGED_NAMES, KINDS, Kind, LOST_REFERENCES};

/// A sound store with two paths.
struct SoundStore {
    corpus: Corpus,
    scratch: Scratch,
    /// A dead path, which refers to the leaf.
    path: String,
    /// A path with a root and without references.
    leaf: String,
    /// The rows of the dead path.
    registered: Vec<String>,
}

impl SoundStore {
    fn new(corpus: Corpus) -> SoundStore {
        let find = |name: &str| {
            let mut paths = corpus.paths.iter();
            paths.find(|path| path.contains(name)).unwrap().clone()
        };
        let mut store = SoundStore {
            path: find("-libgcc-s1-"),
            leaf: find("-gcc-12-base-"),
            corpus,
            scratch: scratch(),
            registered: Vec::new(),
        };
        let corpus = &store.corpus;
        let mut copy = floe(["copy", "--trusted-public-keys", &corpus.key, "--from"]);
        copy.arg(corpus.file_url("none"))
            .arg("--to")
            .arg(store.root());
        run(copy.arg(&store.path)).expect(0);
        let link = store.root().join("nix/var/nix/gcroots/kept");
        symlink(&store.leaf, link).unwrap();
        store.registered = registered(&store.root(), &store.path);
        store
    }

    fn root(&self) -> PathBuf {
        self.scratch.join("root")
    }
}

/// A copy of a store with one damaged row. It shares the files of the paths.
struct DamagedStore<'a> {
    kind: &'static Kind,
    scratch: Scratch,
    root: PathBuf,
    sound: &'a SoundStore,
}

impl DamagedStore<'_> {
    fn new<'a>(sound: &'a SoundStore, kind: &'static Kind) -> DamagedStore<'a> {
        let scratch = scratch();
        let root = scratch.join("root");
        let copy = |option: &str, from: &Path, to: &Path| {
            run(Command::new("cp").arg(option).args([from, to])).expect(0);
        };
        copy("-al", &sound.root(), &root);
        let directory = root.join("nix/var/nix/db");
        fs::remove_dir_all(&directory).unwrap();
        copy("-a", &sound.root().join("nix/var/nix/db"), &directory);
        let store = DamagedStore {
            kind,
            scratch,
            root,
            sound,
        };
        let database = store.database();
        let SoundStore { path, leaf, .. } = sound;
        let id = |path: &str| {
            let text = "select id from ValidPaths where path = ?1";
            let id: i64 = database.query_row(text, [path], |row| row.get(0)).unwrap();
            id.to_string()
        };
        let (path_id, leaf_id) = (id(path), id(leaf));
        let sql = kind.sql.replace("PATH", path);
        let sql = sql.replace("LEAF", leaf).replace("HASH", UNKNOWN_HASH);
        let sql = sql.replace("(P,", &format!("({path_id},"));
        let sql = sql.replace(", P)", &format!(", {path_id})"));
        let sql = sql.replace("id = P", &format!("id = {path_id}"));
        database.execute_batch(&sql).unwrap();
        assert_ne!(path_id, leaf_id);
        store
    }

    /// Opens the database without its constraints.
    fn database(&self) -> Connection {
        database_of(&self.root)
    }

    /// Runs a command of floe on the store.
    #[track_caller]
    fn run(&self, args: &[&str]) -> CommandOutput {
        run(floe(args).arg("--root").arg(&self.root))
    }

    /// Runs a command that leaves the row out, and warns once.
    #[track_caller]
    fn expect_one_warning(&self, command: &mut Command) -> CommandOutput {
        let ran = run(command).expect(0);
        let warnings = ran.stderr.matches("of the database (").count();
        let name = self.kind.name;
        assert_eq!(warnings, 1, "{name}: {command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("try floe verify"), "{}", ran.stderr);
        ran
    }

    fn has_files(&self, path: &str) -> bool {
        fs::symlink_metadata(self.root.join(&path[1..])).is_ok()
    }
}

fn database_of(root: &Path) -> Connection {
    let database = Connection::open(root.join("nix/var/nix/db/db.sqlite")).unwrap();
    let config = DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY;
    database.set_db_config(config, false).unwrap();
    database
}

/// Returns what is registered about a path except the time, with its references.
fn registered(root: &Path, path: &str) -> Vec<String> {
    let text = "select v.path || ' ' || v.hash || ' ' || v.narSize || ' ' || \
             coalesce(v.deriver, '') || ' ' || coalesce(v.sigs, '') || ' ' || coalesce(t.path, '') \
             from ValidPaths v left join Refs r on r.referrer = v.id \
             left join ValidPaths t on t.id = r.reference where v.path = ?1 order by t.path";
    let database = database_of(root);
    let mut query = database.prepare(text).unwrap();
    let rows = query.query_map([path], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// Runs a check for each kind of row, on several threads.
fn for_each_kind(check: impl Fn(&DamagedStore<'_>) + Sync) {
    let Some(corpus) = corpus("jq") else { return };
    let sound = SoundStore::new(corpus);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for kinds in KINDS.chunks(KINDS.len().div_ceil(threads)) {
            let (sound, check) = (&sound, &check);
            scope.spawn(move || {
                for kind in kinds {
                    check(&DamagedStore::new(sound, kind));
                }
            });
        }
    });
}

#[test]
fn reading_commands_leave_damaged_rows_out() {
    if ran_in_pid_namespace() {
        return;
    }
    for_each_kind(|store| {
        let (root, class) = (&store.root, store.kind.class);
        let path = &store.sound.path;
        let to = store.scratch.join("cache");
        let other = store.scratch.join("other");
        let from_store = |args: &[&str]| {
            let mut command = floe(args);
            command.arg("--root").arg(root);
            command
        };
        let copy = |args: &[&str], to: &Path| {
            let mut command = floe(args);
            command.arg("--from").arg(root).arg("--to").arg(to);
            command
        };
        let to_cache = format!("file://{}?compression=none", to.display());
        let mut whole = [
            from_store(&["list", "--all"]),
            from_store(&["info", "--all"]),
            copy(&["copy", "--all", "--no-check-sigs"], &other),
            copy(&["copy", "--all"], Path::new(&to_cache)),
        ];
        match class {
            Class::Meaningless | Class::NamesPath if is_about_other_tables(store.kind) => {
                whole.iter_mut().for_each(|it| _ = run(it).expect(0));
            }
            Class::Meaningless | Class::NamesPath | Class::Unreadable => {
                let listed = whole.iter_mut().map(|it| store.expect_one_warning(it));
                let listed: Vec<CommandOutput> = listed.collect();
                let shown = listed[1].stdout.matches("StorePath: ").count();
                let expected = 2 - usize::from(class == Class::Unreadable);
                assert_eq!(shown, expected, "{}", store.kind.name);
            }
            Class::Outputs => whole.iter_mut().for_each(|it| _ = run(it).expect(0)),
            // A path without a size is listed, and cannot be copied.
            Class::NoSize => whole[..2].iter_mut().for_each(|it| _ = run(it).expect(0)),
        }
        for command in [&["list"][..], &["roots"], &["gc", "--print-roots"]] {
            store.run(command).expect(0);
        }
        // The path itself.
        let is_unreadable = class == Class::Unreadable;
        let info = store.run(&["info", path]);
        assert_eq!(info.code == Some(0), !is_unreadable, "{}", store.kind.name);
        if is_unreadable {
            info.stderr_contains("cannot read the row of");
        }
        store.run(&["info", &store.sound.leaf]).expect(0);
        store.run(&["roots", "--why", path]).expect(0);
        // Another path is copied in the same run.
        let third = store.scratch.join("third");
        let mut both = copy(
            &["copy", "--no-check-sigs", path, &store.sound.leaf],
            &third,
        );
        let both = run(&mut both);
        let is_copied = !matches!(class, Class::Unreadable | Class::NoSize);
        assert_eq!(both.code == Some(0), is_copied, "{}", both.stderr);
        assert!(third.join(&store.sound.leaf[1..]).exists());
    });
}

/// Whether a kind has its row in another table than that of the paths. `list --all` does not look
/// there for rows that describe no path.
fn is_about_other_tables(kind: &Kind) -> bool {
    !kind.sql.contains("ValidPaths") && kind.class != Class::Unreadable
}

#[test]
fn verify_lists_damaged_rows_and_repairs_them() {
    for_each_kind(|store| {
        let name = store.kind.name;
        let path = &store.sound.path;
        let found = store.run(&["verify", "--json"]).expect(3).json();
        let problems = found["problems"].as_array().unwrap();
        assert!(!problems.is_empty(), "{name}");
        let expected = match store.kind.class {
            Class::NoSize => "wrongSize",
            _ => "damagedRow",
        };
        for problem in problems {
            assert_eq!(problem["kind"], expected, "{name}: {problem}");
        }
        // Without a cache, floe removes only what describes no path, and computes sizes.
        let empty = store.scratch.join("empty");
        fs::create_dir(&empty).unwrap();
        fs::write(empty.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
        let empty = format!("file://{}", empty.display());
        let needs_cache = matches!(store.kind.class, Class::Unreadable | Class::Outputs);
        let code = if needs_cache { 3 } else { 0 };
        store
            .run(&["verify", "--repair", "--from", &empty])
            .expect(code);
        let cache = store.sound.corpus.file_url("none");
        let keys = ["--trusted-public-keys", &store.sound.corpus.key];
        let repair = ["verify", "--repair", "--from", &cache, keys[0], keys[1]];
        store.run(&repair).expect(0);
        let found = store.run(&["verify", "--json"]).expect(0).json();
        assert_eq!(found["paths"], 2, "{name}");
        let registered = registered(&store.root, path);
        assert_eq!(registered, store.sound.registered, "{name}");
        for nix in nixes() {
            let mut verify = nix.command("nix-store", ["--store"]);
            verify.arg(&store.root);
            let verified = run(verify.args(["--verify", "--check-contents"])).expect(0);
            assert!(!verified.stderr.contains("error"), "{}", verified.stderr);
        }
    });
}

#[test]
fn collections_keep_what_damaged_rows_name() {
    if ran_in_pid_namespace() {
        return;
    }
    for_each_kind(|store| {
        let (name, class) = (store.kind.name, store.kind.class);
        let path = &store.sound.path;
        let is_kept = class == Class::NamesPath;
        let delete = store.run(&["delete", "--dry-run", path]);
        assert_eq!(
            delete.code == Some(0),
            !is_kept,
            "{name}: {}",
            delete.stderr
        );
        if is_kept {
            delete.stderr_contains("a damaged row of the database names it");
            store.run(&["delete", path]);
            assert!(store.has_files(path), "{name}");
        }
        for args in [&["gc", "--dry-run"][..], &["gc"]] {
            let has_path_row = store.kind.sql.contains("into ValidPaths");
            let mut command = floe(args);
            command.arg("--root").arg(&store.root);
            if is_kept || has_path_row {
                store.expect_one_warning(&mut command)
            } else {
                run(&mut command).expect(0)
            };
        }
        assert_eq!(store.has_files(path), is_kept, "{name}");
        assert!(store.has_files(&store.sound.leaf), "{name}");
        store.run(&["info", &store.sound.leaf]).expect(0);
    });
}

/// Makes the dead path a live one, and the leaf its reference alone. Adds a file without a row, and
/// returns its path.
fn make_live(store: &DamagedStore<'_>) -> String {
    let roots = store.root.join("nix/var/nix/gcroots");
    fs::remove_file(roots.join("kept")).unwrap();
    symlink(&store.sound.path, roots.join("live")).unwrap();
    let path = format!("/nix/store/{UNKNOWN_HASH}-unregistered");
    fs::write(store.root.join(&path[1..]), "text").unwrap();
    path
}

#[test]
fn lost_reference_of_a_live_path_keeps_everything() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let sound = SoundStore::new(corpus);
    for kind in LOST_REFERENCES {
        let store = DamagedStore::new(&sound, kind);
        let (name, unregistered) = (kind.name, make_live(&store));
        for args in [&["gc", "--dry-run"][..], &["gc"], &["gc"]] {
            let mut command = floe(args);
            let ran = store.expect_one_warning(command.arg("--root").arg(&store.root));
            assert!(ran.stderr.contains(&sound.path), "{name}: {}", ran.stderr);
            assert!(ran.stderr.contains("floe verify --repair"), "{name}");
        }
        for args in [
            &["delete", "--dry-run", &unregistered][..],
            &["delete", &unregistered],
            &["delete", "--ignore-liveness", &sound.leaf],
        ] {
            let ran = store.run(args).expect(1);
            let expected = format!("{} has lost a reference", sound.path);
            let is_named = ran
                .stderr
                .contains("a damaged row of the database names it");
            assert!(
                ran.stderr.contains(&expected) || is_named,
                "{name}: {args:?}: {}",
                ran.stderr
            );
        }
        store
            .run(&["delete", "--skip-alive", &unregistered])
            .expect(0);
        for path in [&sound.path, &sound.leaf, &unregistered] {
            assert!(store.has_files(path), "{name}: {path}");
        }
        // The repair finds the reference again.
        let cache = sound.corpus.file_url("none");
        let keys = ["--trusted-public-keys", &sound.corpus.key];
        let repair = ["verify", "--repair", "--from", &cache, keys[0], keys[1]];
        store.run(&repair).expect(0);
        store.run(&["gc"]).expect(0);
        assert!(store.has_files(&sound.leaf), "{name}");
        assert!(!store.has_files(&unregistered), "{name}");
        assert_eq!(registered(&store.root, &sound.path), sound.registered);
    }
}

#[test]
fn lost_reference_of_a_dead_path_keeps_nothing() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let sound = SoundStore::new(corpus);
    for kind in LOST_REFERENCES {
        let store = DamagedStore::new(&sound, kind);
        make_live(&store);
        fs::remove_file(store.root.join("nix/var/nix/gcroots/live")).unwrap();
        store.run(&["delete", "--dry-run", &sound.path]).expect(0);
        store.run(&["gc"]).expect(0);
        assert!(!store.has_files(&sound.path), "{}", kind.name);
    }
}

#[test]
fn damaged_name_keeps_files_with_its_hash_part() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let sound = SoundStore::new(corpus);
    for kind in DAMAGED_NAMES {
        let store = DamagedStore::new(&sound, kind);
        let unregistered = make_live(&store);
        store.run(&["gc", "--dry-run"]).expect(0);
        store.run(&["delete", &sound.leaf]).expect(1);
        let ran = store.run(&["gc"]).expect(0);
        assert!(ran.stderr.contains("keeping all paths in a damaged row"));
        assert!(store.has_files(&sound.leaf), "{}", kind.name);
        assert!(!store.has_files(&unregistered), "{}", kind.name);
    }
}

#[test]
fn optimise_leaves_damaged_rows_out() {
    for_each_kind(|store| {
        let has_path_row = store.kind.sql.contains("into ValidPaths");
        for args in [&["optimise", "--dry-run"][..], &["optimise"]] {
            let mut command = floe(args);
            command.arg("--root").arg(&store.root);
            if has_path_row {
                store.expect_one_warning(&mut command)
            } else {
                run(&mut command).expect(0)
            };
        }
    });
}

#[test]
fn server_beside_damaged_rows_serves_other_paths() {
    for_each_kind(|store| {
        let server = ServerProcess::start(&store.root, &[]);
        let get = |path: &str| server.get(&format!("/{}.narinfo", hash_part(path))).status;
        assert_eq!(get(&store.sound.leaf), 200, "{}", store.kind.name);
        let expected = match store.kind.class {
            Class::Unreadable => 500,
            _ => 200,
        };
        assert_eq!(get(&store.sound.path), expected, "{}", store.kind.name);
    });
}

/// A hash part that no path has.
const UNKNOWN_HASH: &str = "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz";
