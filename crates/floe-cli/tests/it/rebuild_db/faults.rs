//! Rebuilds that fail, and rebuilds that are killed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use floe_format::StoreDir;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::{corpus, nixes, run, scratch};
use serde_json::json;

use super::{database, libc, rebuild, rebuild_from, registered, store_of};

#[test]
fn store_that_another_process_has_open_is_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    let writer = StoreWriter::open(layout).unwrap();
    let ran = run(&mut rebuild(&root)).expect(1);
    let process = format!("process {}", std::process::id());
    assert!(ran.stderr.contains("have the store open"), "{}", ran.stderr);
    assert!(ran.stderr.contains(&process), "{}", ran.stderr);
    drop(writer);
    assert_eq!(registered(&root), before);
}

#[test]
fn killed_rebuild_leaves_the_old_database_or_the_new_one() {
    let Some(corpus) = corpus("curl") else { return };
    let (_scratch, root) = store_of(&corpus);
    let whole = registered(&root);
    let mut kills = 0;
    for delay in (0..60).map(|number| Duration::from_millis(number * 2)) {
        // Alternately, all rows are to be found again, and all are there.
        let is_lost = kills % 2 == 0;
        if is_lost {
            fs::write(database(&root), "no database").unwrap();
        }
        let mut child = rebuild_from(&root, &corpus)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The kill comes at a different moment each time.
        thread::sleep(delay);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        kills += usize::from(status.code().is_none());
        let is_old = fs::read(database(&root)).unwrap() == b"no database";
        if !is_old {
            assert_eq!(registered(&root), whole, "after {delay:?}");
        }
        run(&mut rebuild_from(&root, &corpus)).expect(0);
        assert_eq!(registered(&root), whole, "after {delay:?}");
    }
    assert!(kills > 10, "only {kills} rebuilds were killed");
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
    assert!(!root.join("nix/var/nix/db/floe-rebuild").exists());
}

#[test]
fn rows_in_the_log_of_a_killed_writer_are_found() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let whole = registered(&root);
    // All rows are in the log, as after a power cut.
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    connection
        .execute_batch("update ValidPaths set sigs = null")
        .unwrap();
    let log = root.join("nix/var/nix/db/db.sqlite-wal");
    let bytes = fs::read(&log).unwrap();
    assert!(!bytes.is_empty());
    let file = fs::read(database(&root)).unwrap();
    drop(connection);
    fs::write(database(&root), file).unwrap();
    fs::write(&log, bytes).unwrap();
    let report = run(rebuild(&root).arg("--json")).expect(0).json();
    assert_eq!(super::count(&report, "fromDatabase"), corpus.paths.len());
    assert_ne!(registered(&root), whole, "the transaction was lost");
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn newer_schema_and_empty_directory_are_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let schema = root.join("nix/var/nix/db/schema");
    fs::write(&schema, "11").unwrap();
    let ran = run(&mut rebuild(&root)).expect(1);
    assert!(ran.stderr.contains("schema 11"), "{}", ran.stderr);
    for damaged in ["", "ten\n"] {
        fs::write(&schema, damaged).unwrap();
        run(&mut rebuild(&root)).expect(0);
        assert_eq!(fs::read_to_string(&schema).unwrap(), "10");
    }
    let empty = scratch();
    let ran = run(&mut rebuild(&empty.join("root"))).expect(1);
    assert!(
        ran.stderr.contains("no store paths are there"),
        "{}",
        ran.stderr
    );
    assert!(!empty.join("root").exists());
}

#[test]
fn unreachable_cache_is_an_error_only_if_the_user_names_it() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    fs::remove_file(database(&root)).unwrap();
    let mut named = rebuild(&root);
    let once = ["--option", "download-attempts", "1"];
    run(named.args(["--from", "http://127.0.0.1:1"]).args(once)).expect(4);
    assert!(!database(&root).exists());
    let mut configured = crate::support::floe(["rebuild-db", "--json", "--root"]);
    configured
        .arg(&root)
        .args(once)
        .args(["--option", "substituters", "http://127.0.0.1:1"]);
    let ran = run(&mut configured).expect(3);
    assert!(ran.stderr.contains("no cache is queried"), "{}", ran.stderr);
    assert_eq!(ran.json()["fromCaches"], json!({}));
    // The cache may have signed other contents.
    let before = registered(&root);
    let ran = run(configured.arg("--accept-unsigned")).expect(4);
    assert!(ran.stderr.contains("cannot be asked"), "{}", ran.stderr);
    assert_eq!(registered(&root), before);
}

#[test]
fn path_about_which_a_cache_fails_is_never_accepted() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    fs::remove_file(database(&root)).unwrap();
    let cache = corpus.cache_copy("none", scratch.path());
    let libc = libc(&corpus);
    let path = StoreDir::default().parse(libc).unwrap();
    // A directory cannot be read.
    let narinfo = cache.join(format!("{}.narinfo", path.hash_part()));
    fs::remove_file(&narinfo).unwrap();
    fs::create_dir(&narinfo).unwrap();
    let mut command = rebuild(&root);
    command.args([
        "--trusted-public-keys",
        &corpus.key,
        "--accept-unsigned",
        "--json",
    ]);
    let ran = run(command
        .arg("--from")
        .arg(format!("file://{}", cache.display())))
    .expect(3);
    let report = ran.json();
    assert!(
        super::left_out(&report).contains(&(libc, "unanswered")),
        "{report}"
    );
    assert_eq!(report["unsigned"], json!([]));
}

/// A store directory without paths is probably not mounted.
#[test]
fn rows_of_a_store_without_trees_are_kept() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let store = root.join("nix/store");
    fs::rename(&store, root.join("nix/mounted")).unwrap();
    fs::create_dir(&store).unwrap();
    let ran = run(&mut rebuild(&root)).expect(1);
    assert!(
        ran.stderr.contains("no store paths are there"),
        "{}",
        ran.stderr
    );
    assert_eq!(registered(&root), before);
}

#[test]
fn store_below_a_link_is_refused() {
    let Some(corpus) = corpus("jq") else { return };
    let (scratch, root) = store_of(&corpus);
    let link = scratch.join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    let ran = run(&mut rebuild(&link)).expect(1);
    assert!(ran.stderr.contains("symbolic link"), "{}", ran.stderr);
}

/// Root makes the state directory of another user's store.
#[test]
fn owner_of_a_store_gets_the_database_that_root_makes() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    fs::remove_dir_all(root.join("nix/var")).unwrap();
    let owner = 65_534;
    let changed = run(Command::new("chown")
        .arg("-R")
        .arg(owner.to_string())
        .arg(&root));
    changed.expect(0);
    run(&mut rebuild_from(&root, &corpus)).expect(0);
    let mut found = Command::new("find");
    found.arg(&root).args(["!", "-user", "65534"]);
    assert_eq!(run(&mut found).expect(0).stdout, "");
}

#[test]
fn unreadable_tree_is_left_out_and_named() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let place = root.join("nix/store/00000000000000000000000000000000-fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, &place, mode).unwrap();
    let ran = run(rebuild(&root).args(["--accept-unsigned", "--json"])).expect(3);
    let report = ran.json();
    let [(path, kind)] = *super::left_out(&report) else {
        panic!("{report}");
    };
    assert!(path.ends_with("-fifo"));
    assert_eq!(kind, "refused");
    assert!(rustix::fs::stat(&place).is_ok());
}
