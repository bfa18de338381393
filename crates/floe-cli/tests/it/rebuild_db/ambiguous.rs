//! Stores in which names, sizes or contents mislead a rebuild.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use floe_format::{NarInfo, StoreDir};
use floe_testkit::{corpus, nixes, run};
use serde_json::Value;

use super::{count, database, left_out, libc, rebuild, rebuild_from, registered, store_of};

fn saved(report: &Value) -> Option<&str> {
    report["savedDatabase"].as_str()
}

/// `PATH.lock` is the lock of a path, and the end of many names of files.
#[test]
fn path_whose_name_ends_as_that_of_a_lock_is_kept() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    let nix = &nixes()[0];
    let (locks, empty) = (scratch.join("Cargo.lock"), scratch.join("empty.lock"));
    fs::write(&locks, "[[package]]").unwrap();
    fs::write(&empty, "").unwrap();
    let add = |file: &Path| nix.store(&root, ["--add", file.to_str().unwrap()]);
    let (locks, empty) = (add(&locks), add(&empty));
    fs::write(root.join(format!("{}.lock", &corpus.root[1..])), "").unwrap();
    let before = registered(&root);
    run(&mut rebuild(&root)).expect(0);
    assert_eq!(registered(&root), before);
    fs::remove_file(database(&root)).unwrap();
    run(&mut rebuild_from(&root, &corpus)).expect(0);
    let after = registered(&root);
    assert!(after.get(locks.trim()).is_some());
    // Without a row, an empty file of this name is probably a lock.
    assert!(after.get(empty.trim()).is_none());
    nix.verify(&root, corpus.paths.len() + 1);
}

/// Nix leaves `HASH-NAME.check` after a build that it repeats.
#[test]
fn leftover_with_the_same_hash_part_gets_no_references() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let libc = libc(&corpus);
    let leftover = root.join(format!("{}.check", &libc[1..]));
    fs::write(&leftover, "leftover").unwrap();
    fs::remove_file(database(&root)).unwrap();
    let report = run(rebuild_from(&root, &corpus).arg("--json"))
        .expect(3)
        .json();
    let [(path, kind)] = *left_out(&report) else {
        panic!("{report}");
    };
    assert_eq!((path, kind), (&*format!("{libc}.check"), "sameHashPart"));
    assert_eq!(registered(&root), before);
    // If none of the two is known, neither is chosen.
    fs::remove_file(database(&root)).unwrap();
    let ran = run(rebuild(&root).args(["--accept-unsigned", "--json"])).expect(3);
    let report = ran.json();
    let found = left_out(&report);
    assert!(found.contains(&(libc, "sameHashPart")), "{found:?}");
    fs::remove_file(leftover).unwrap();
    run(rebuild(&root).arg("--accept-unsigned")).expect(0);
    assert_eq!(
        registered(&root).as_object().unwrap().len(),
        corpus.paths.len()
    );
}

/// Too few descriptors say nothing about the paths.
#[test]
fn error_of_the_process_ends_the_rebuild_without_a_change() {
    let Some(corpus) = corpus("curl") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let mut in_trees = 0;
    for limit in 6..24 {
        let limited = rebuild(&root);
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script]).arg(limited.get_program());
        for (name, value) in limited.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let ran = run(shell.args(limited.get_args()));
        let is_exhausted = ran.stderr.contains("Too many open files");
        in_trees += usize::from(is_exhausted && ran.stderr.contains("/nix/store/"));
        assert!(
            ran.code == Some(0) || ran.code == Some(1),
            "{limit}: {}",
            ran.stderr
        );
        assert_eq!(registered(&root), before, "{limit}: {}", ran.stderr);
    }
    assert!(in_trees > 0, "no limit was reached while trees were read");
}

#[test]
fn rows_that_an_intact_database_loses_are_copied_before() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    super::damage(
        &root,
        &format!("{}/usr/share/doc/jq/copyright", corpus.root),
    );
    let report = run(rebuild(&root).arg("--json")).expect(3).json();
    assert_eq!(left_out(&report), [(&*corpus.root, "otherContents")]);
    let copy = rusqlite::Connection::open(saved(&report).unwrap()).unwrap();
    let rows: usize = copy
        .query_row("select count(*) from ValidPaths", (), |row| {
            row.get::<_, u32>(0)
        })
        .unwrap() as usize;
    assert_eq!(rows, corpus.paths.len());
    assert_eq!(count(&report, "fromDatabase"), corpus.paths.len() - 1);
}

/// A source may contain a link such as `result`.
#[test]
fn sources_that_only_name_other_paths_need_no_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    let nix = &nixes()[0];
    let source = scratch.join("source");
    fs::create_dir(&source).unwrap();
    std::os::unix::fs::symlink(&corpus.root, source.join("result")).unwrap();
    let text = scratch.join("text");
    fs::write(&text, &corpus.root).unwrap();
    nix.store(&root, ["--add", source.to_str().unwrap()]);
    nix.store(&root, ["--add-fixed", "sha256", text.to_str().unwrap()]);
    let before = registered(&root);
    fs::remove_file(database(&root)).unwrap();
    let report = run(rebuild_from(&root, &corpus).arg("--json"))
        .expect(0)
        .json();
    assert_eq!(count(&report, "contentAddressed"), 2);
    let after = registered(&root);
    for path in report["contentAddressed"].as_array().unwrap() {
        let path = path.as_str().unwrap();
        assert_eq!(
            after[path]["references"], before[path]["references"],
            "{path}"
        );
        assert_eq!(after[path]["ca"], before[path]["ca"], "{path}");
    }
}

/// A cache without a signature may state any size.
#[test]
fn sizes_of_hostile_narinfos_are_no_overflow() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    let nix = &nixes()[0];
    let cache = corpus.cache_copy("none", scratch.path());
    for number in 0..3 {
        let file = scratch.join(&format!("file-{number}"));
        fs::write(&file, format!("contents {number}")).unwrap();
        let path = nix.store(&root, ["--add", file.to_str().unwrap()]);
        let path = StoreDir::default().parse(path.trim()).unwrap();
        let url = format!("file://{}", cache.display());
        let mut copy = crate::support::floe(["copy", "--no-check-sigs", "--from"]);
        run(copy.arg(&root).arg("--to").arg(url).arg(path.as_str())).expect(0);
        let narinfo = cache.join(format!("{}.narinfo", path.hash_part()));
        let text = fs::read(&narinfo).unwrap();
        let mut info = NarInfo::parse(&text, &StoreDir::default()).unwrap();
        info.info.nar_size = u64::MAX - 9;
        fs::write(narinfo, info.to_text(&StoreDir::default())).unwrap();
    }
    let before = registered(&root);
    fs::remove_file(database(&root)).unwrap();
    let mut command = rebuild(&root);
    command.args(["--trusted-public-keys", &corpus.key, "--from"]);
    let report = run(command
        .arg(format!("file://{}", cache.display()))
        .arg("--json"));
    assert_eq!(count(&report.expect(0).json(), "contentAddressed"), 3);
    assert_eq!(registered(&root), before);
}

#[test]
fn control_characters_of_file_names_are_escaped() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let tree = root.join("nix/store/00000000000000000000000000000000-a");
    fs::create_dir(&tree).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let pipe = tree.join("a\n\u{1b}[2Jforged");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let ran = run(&mut rebuild(&root)).expect(3);
    assert_eq!(ran.stdout.lines().count(), 1, "{:?}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "{:?}", ran.stdout);
    let jq = root.join(&corpus.root[1..]);
    fs::set_permissions(&jq, fs::Permissions::from_mode(0o755)).unwrap();
    let pipe = jq.join("a\n\u{1b}[2Jforged");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let ran = run(crate::support::floe(["verify", "--root"]).arg(&root)).expect(3);
    assert_eq!(ran.stdout.lines().count(), 1, "{:?}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "{:?}", ran.stdout);
}

/// The row of a path says that a trusted key has signed its references, and these are gone.
#[test]
fn rows_that_contradict_their_signatures_are_corrected() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    connection.execute("delete from Refs", ()).unwrap();
    run(&mut rebuild_from(&root, &corpus)).expect(0);
    assert_eq!(registered(&root), before);
    // Without a cache, the contents tell the references.
    connection.execute("delete from Refs", ()).unwrap();
    let mut trusting = rebuild(&root);
    run(trusting.args(["--trusted-public-keys", &corpus.key])).expect(0);
    let after = registered(&root);
    let references = |path: &String| after[path]["references"].as_array().unwrap().len();
    assert!(corpus.paths.iter().map(references).sum::<usize>() > 0);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn outputs_of_derivations_and_damaged_rows_are_corrected() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    let nix = &nixes()[0];
    let expression = r#"derivation { name = "d"; system = "x"; builder = "/bin/sh"; }"#;
    let file = scratch.join("d.nix");
    fs::write(&file, expression).unwrap();
    let mut instantiate = nix.command("nix-instantiate", ["--store"]);
    let drv = run(instantiate.arg(&root).arg(&file)).expect(0).stdout;
    let output = nix.store(&root, ["--query", "--outputs", drv.trim()]);
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    let wrong = "update DerivationOutputs set path = ?1";
    connection.execute(wrong, [&corpus.root]).unwrap();
    let damaged = "update ValidPaths set sigs = 'no signature' where path = ?1";
    connection.execute(damaged, [&corpus.root]).unwrap();
    drop(connection);
    let report = run(rebuild_from(&root, &corpus).arg("--json")).expect(0);
    assert!(report.stderr.contains("damaged row"), "{}", report.stderr);
    assert!(saved(&report.json()).is_some());
    assert_eq!(
        nix.store(&root, ["--query", "--outputs", drv.trim()]),
        output
    );
    nix.verify(&root, corpus.paths.len() + 1);
}

/// A crash of a process without a write-ahead log leaves the directory that locks the database.
#[test]
fn stale_lock_directory_is_removed() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    let mode = "pragma journal_mode = truncate";
    connection.query_row(mode, (), |_| Ok(())).unwrap();
    drop(connection);
    let directory = root.join("nix/var/nix/db/db.sqlite.lock");
    fs::create_dir(&directory).unwrap();
    let report = run(rebuild(&root).arg("--json")).expect(0).json();
    assert_eq!(count(&report, "fromDatabase"), corpus.paths.len());
    assert!(!directory.exists());
}

/// A rebuild that leaves out a path also drops the rows of those that need it.
#[test]
fn rows_that_an_earlier_rebuild_has_dropped_are_used_again() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    // The rows of a machine that has built the paths itself.
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    let own = "update ValidPaths set sigs = null, ultimate = 1 where path not like '%-libc6-%'";
    connection.execute(own, ()).unwrap();
    drop(connection);
    let before = registered(&root);
    let libc = libc(&corpus);
    super::damage(&root, &format!("{libc}/usr/share/doc/libc6/copyright"));
    let report = run(rebuild(&root).arg("--json")).expect(3).json();
    assert!(count(&report, "leftOut") > 1, "{report}");
    super::install(&root, &corpus, libc);
    run(&mut rebuild(&root)).expect(0);
    assert_eq!(registered(&root), before);
}

/// The file of a lost database leaves its log, which gets a number of its own.
#[test]
fn numbers_of_saved_databases_may_have_gaps() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    connection
        .execute("update ValidPaths set sigs = null", ())
        .unwrap();
    drop(connection);
    let before = registered(&root);
    fs::write(root.join("nix/var/nix/db/db.sqlite.old-1-wal"), "").unwrap();
    let file = format!("{}/usr/share/doc/jq/copyright", corpus.root);
    let place = root.join(&file[1..]);
    let contents = fs::read(&place).unwrap();
    super::damage(&root, &file);
    let report = run(rebuild(&root).arg("--json")).expect(3).json();
    assert!(
        saved(&report).unwrap().ends_with("db.sqlite.old-2"),
        "{report}"
    );
    // The rows of the second file are found although there is no first one.
    fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&place, contents).unwrap();
    run(&mut rebuild(&root)).expect(0);
    assert_eq!(registered(&root), before);
}
