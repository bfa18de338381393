//! `floe rebuild-db`: databases made from the paths on disk, which both Nixes accept.

mod ambiguous;
mod built;
mod faults;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{CommandOutput, Corpus, Scratch, corpora, corpus, nixes, run, scratch};
use serde_json::Value;

use crate::support::floe;

/// A command that rebuilds the database of a store, and queries no configured cache.
fn rebuild(root: &Path) -> Command {
    let mut command = floe(["rebuild-db", "--option", "substituters", "", "--root"]);
    command.arg(root);
    command
}

/// As [`rebuild`], with a cache of the corpus.
fn rebuild_from(root: &Path, corpus: &Corpus) -> Command {
    let mut command = rebuild(root);
    command.args(["--from", &corpus.file_url("none")]);
    command.args(["--trusted-public-keys", &corpus.key]);
    command
}

/// Makes a store with the closure of a corpus.
fn store_of(corpus: &Corpus) -> (Scratch, PathBuf) {
    let scratch = scratch();
    let root = scratch.join("root");
    let from = corpus.file_url("none");
    let mut copy = floe([
        "copy",
        "--trusted-public-keys",
        &corpus.key,
        "--from",
        &from,
        "--to",
    ]);
    run(copy.arg(&root).arg(&corpus.root)).expect(0);
    (scratch, root)
}

/// Returns the path of the C library, which others of the corpus need.
fn libc(corpus: &Corpus) -> &String {
    let mut paths = corpus.paths.iter();
    paths.find(|path| path.contains("-libc6-")).unwrap()
}

/// Installs a path of a corpus with trusted signatures.
fn install(root: &Path, corpus: &Corpus, path: &str) -> CommandOutput {
    let from = corpus.file_url("none");
    let mut install = floe([
        "install",
        "--trusted-public-keys",
        &corpus.key,
        "--from",
        &from,
    ]);
    run(install.arg("--root").arg(root).arg(path)).expect(0)
}

fn database(root: &Path) -> PathBuf {
    root.join("nix/var/nix/db/db.sqlite")
}

/// Returns all that is registered, without the times.
fn registered(root: &Path) -> Value {
    let mut infos = run(floe(["info", "--all", "--json", "--root"]).arg(root))
        .expect(0)
        .json();
    for info in infos.as_object_mut().unwrap().values_mut() {
        info.as_object_mut().unwrap().remove("registrationTime");
    }
    infos
}

/// Returns the number of paths in an array of a report.
fn count(report: &Value, field: &str) -> usize {
    report[field].as_array().unwrap().len()
}

/// Returns the kinds of the paths that were left out, by path.
fn left_out(report: &Value) -> Vec<(&str, &str)> {
    let left_out = report["leftOut"].as_array().unwrap().iter();
    left_out
        .map(|it| (it["path"].as_str().unwrap(), it["kind"].as_str().unwrap()))
        .collect()
}

/// Changes a byte of a file in a path.
fn damage(root: &Path, file: &str) {
    let file = root.join(file.trim_start_matches('/'));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    bytes[10] ^= 1;
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
}

/// Makes all files of a tree writable, as a copy without modes does.
fn make_writable(tree: &Path) {
    let found = fs::symlink_metadata(tree).unwrap();
    if found.is_symlink() {
        return;
    }
    let mode = found.permissions().mode() | 0o222;
    fs::set_permissions(tree, fs::Permissions::from_mode(mode)).unwrap();
    if found.is_dir() {
        for entry in fs::read_dir(tree).unwrap() {
            make_writable(&entry.unwrap().path());
        }
    }
}

#[test]
fn bare_copy_of_a_store_becomes_one_that_nix_accepts() {
    for corpus in corpora() {
        for nix in nixes() {
            let scratch = scratch();
            let root = scratch.join("root");
            fs::create_dir_all(root.join("nix")).unwrap();
            let mut copy = Command::new("cp");
            copy.arg("-r").arg(corpus.store().join("nix/store"));
            run(copy.arg(root.join("nix"))).expect(0);
            make_writable(&root.join("nix/store"));
            let report = run(rebuild_from(&root, &corpus).arg("--json"))
                .expect(0)
                .json();
            let from_cache = report["fromCaches"][corpus.file_url("none")]
                .as_array()
                .unwrap();
            assert_eq!(from_cache.len(), corpus.paths.len());
            nix.verify(&root, corpus.paths.len());
            let expected = nix.path_infos(&corpus.file_url("none"), &corpus.root);
            let actual = nix.path_infos(root.to_str().unwrap(), &corpus.root);
            assert_eq!(actual.len(), expected.len());
            for (actual, expected) in actual.iter().zip(&expected) {
                for field in ["path", "narHash", "narSize", "references", "signatures"] {
                    assert_eq!(
                        actual[field], expected[field],
                        "{field} of {}",
                        expected["path"]
                    );
                }
            }
            // The paths have the modes of store paths again.
            let root_path = root.join(&corpus.root[1..]);
            assert_eq!(
                fs::metadata(root_path).unwrap().permissions().mode() & 0o777,
                0o555
            );
            // A collection needs no more than a root.
            let installed = run(floe(["install", "--root"]).arg(&root).arg(&corpus.root)).expect(0);
            assert!(installed.stderr.contains("present"), "{}", installed.stderr);
        }
    }
}

#[test]
fn rows_of_an_intact_database_are_kept_and_others_replaced() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let report = run(rebuild(&root).arg("--json")).expect(0).json();
    assert_eq!(count(&report, "fromDatabase"), corpus.paths.len());
    assert_eq!(registered(&root), before);
    assert_eq!(report["savedDatabase"], Value::Null);
    // A row whose tree is gone, and one without a signature.
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    let insert =
        "insert into ValidPaths (path, hash, registrationTime, narSize) values (?1, ?2, 1, 9)";
    let gone = "/nix/store/00000000000000000000000000000000-gone";
    let hash = format!("sha256:{}", "0".repeat(64));
    connection.execute(insert, [gone, &hash]).unwrap();
    connection
        .execute("update ValidPaths set sigs = null, ultimate = 1", ())
        .unwrap();
    let wrong = "update ValidPaths set narSize = 1 where path = ?1";
    connection.execute(wrong, [&corpus.root]).unwrap();
    drop(connection);
    let report = run(rebuild_from(&root, &corpus).arg("--json"))
        .expect(0)
        .json();
    assert_eq!(report["vanished"], serde_json::json!([gone]));
    assert_eq!(count(&report, "fromDatabase"), corpus.paths.len() - 1);
    let after = registered(&root);
    assert_eq!(after[&corpus.root], before[&corpus.root]);
    let other = corpus
        .paths
        .iter()
        .find(|path| **path != corpus.root)
        .unwrap();
    assert_eq!(after[other]["ultimate"], true);
    assert_eq!(after[other]["references"], before[other]["references"]);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

/// Damages a database.
type Damage<'a> = &'a dyn Fn(&Path);

#[test]
fn lost_and_damaged_databases_are_replaced_and_kept_aside() {
    let Some(corpus) = corpus("jq") else { return };
    let whole = |file: &Path| fs::read(file).unwrap();
    let cases: [(&str, Damage<'_>); 6] = [
        ("deleted", &|file| fs::remove_file(file).unwrap()),
        ("emptied", &|file| fs::write(file, "").unwrap()),
        ("overwritten", &|file| {
            fs::write(file, "no database\n".repeat(999)).unwrap()
        }),
        ("cut off", &|file| {
            fs::write(file, &whole(file)[..20_000]).unwrap()
        }),
        ("with a page of zeros", &|file| {
            let mut bytes = whole(file);
            bytes[8192..12288].fill(0);
            fs::write(file, bytes).unwrap();
        }),
        ("of another program", &|file| {
            fs::remove_file(file).unwrap();
            let other = rusqlite::Connection::open(file).unwrap();
            other
                .execute_batch("create table Songs (title text)")
                .unwrap();
        }),
    ];
    for (name, damage) in cases {
        let (_scratch, root) = store_of(&corpus);
        let before = registered(&root);
        let file = database(&root);
        // The log has no pages that the file lacks.
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection
            .query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(()))
            .unwrap();
        drop(connection);
        damage(&file);
        let damaged = fs::read(&file).ok();
        let report = run(rebuild_from(&root, &corpus).arg("--json"))
            .expect(0)
            .json();
        assert_eq!(registered(&root), before, "{name}");
        let saved = report["savedDatabase"]
            .as_str()
            .map(|saved| fs::read(saved).unwrap());
        // SQLite can use an empty file.
        if name != "emptied" {
            assert_eq!(saved, damaged, "{name}");
        }
        for nix in nixes() {
            nix.verify(&root, corpus.paths.len());
        }
    }
}

/// No cache has the paths.
#[test]
fn readable_rows_of_a_damaged_database_are_used() {
    let Some(corpus) = corpus("curl") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let connection = rusqlite::Connection::open(database(&root)).unwrap();
    connection
        .query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(()))
        .unwrap();
    // The page with the references, and so all of them.
    let page: u32 = connection
        .query_row(
            "select rootpage from sqlite_schema where name = 'Refs'",
            (),
            |row| row.get(0),
        )
        .unwrap();
    drop(connection);
    let mut bytes = fs::read(database(&root)).unwrap();
    let page = page as usize;
    let size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    bytes[(page - 1) * size..][..size].fill(0);
    fs::write(database(&root), bytes).unwrap();
    let report = run(rebuild(&root).arg("--json")).expect(0).json();
    assert_eq!(count(&report, "fromDatabase"), corpus.paths.len());
    let after = registered(&root);
    // The contents tell the references again, as far as they name them.
    let references = |infos: &Value| -> usize {
        let infos = infos.as_object().unwrap().values();
        infos
            .map(|info| info["references"].as_array().unwrap().len())
            .sum()
    };
    assert!(references(&after) > 0);
    assert!(references(&after) <= references(&before));
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn damaged_paths_and_their_referrers_are_left_out_until_fetched() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let before = registered(&root);
    let libc = libc(&corpus);
    damage(&root, &format!("{libc}/usr/share/doc/libc6/copyright"));
    fs::remove_file(database(&root)).unwrap();
    // A signature for other contents stands against any other acceptance.
    let mut command = rebuild_from(&root, &corpus);
    let report = run(command.args(["--accept-unsigned", "--json"]))
        .expect(3)
        .json();
    let found = left_out(&report);
    assert!(found.contains(&(libc, "otherContents")), "{found:?}");
    assert!(
        found.contains(&(&corpus.root, "missingReferences")),
        "{found:?}"
    );
    assert_eq!(count(&report, "unsigned"), 0);
    for nix in nixes() {
        nix.verify(&root, 1);
    }
    install(&root, &corpus, libc);
    run(&mut rebuild_from(&root, &corpus)).expect(0);
    assert_eq!(registered(&root), before);
}

#[test]
fn unsigned_paths_get_the_references_in_their_contents() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    fs::remove_file(database(&root)).unwrap();
    let plain = run(&mut rebuild(&root)).expect(3);
    assert_eq!(plain.stdout.lines().count(), corpus.paths.len());
    assert!(
        plain.stderr.contains("--accept-unsigned"),
        "{}",
        plain.stderr
    );
    assert_eq!(registered(&root), serde_json::json!({}));
    // A signature by a key that is not trusted is named.
    let mut untrusted = rebuild(&root);
    let ran = run(untrusted.args(["--from", &corpus.file_url("none")])).expect(3);
    assert!(
        ran.stdout.contains("not trusted (corpus-1)"),
        "{}",
        ran.stdout
    );
    let report = run(rebuild(&root).args(["--accept-unsigned", "--json"]))
        .expect(0)
        .json();
    assert_eq!(count(&report, "unsigned"), corpus.paths.len());
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn dry_run_changes_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let file = root
        .join(&corpus.root[1..])
        .join("usr/share/doc/jq/copyright");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(database(&root), "no database").unwrap();
    let names = |directory: &str| -> Vec<_> {
        let entries = fs::read_dir(root.join(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names("nix/store"), names("nix/var/nix/db"));
    let ran = run(rebuild_from(&root, &corpus).arg("--dry-run")).expect(0);
    assert!(ran.stderr.contains("would register"), "{}", ran.stderr);
    assert_eq!(before, (names("nix/store"), names("nix/var/nix/db")));
    assert_eq!(fs::read(database(&root)).unwrap(), b"no database");
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o644
    );
}

#[test]
fn tree_of_a_path_that_no_cache_has_stays() {
    let Some(corpus) = corpus("jq") else { return };
    let (_scratch, root) = store_of(&corpus);
    let store = root.join("nix/store");
    let own = store.join("00000000000000000000000000000000-own");
    fs::write(&own, "own").unwrap();
    fs::write(store.join(".floe-other"), "").unwrap();
    fs::write(store.join("11111111111111111111111111111111-a.lock"), "").unwrap();
    fs::create_dir(store.join("22222222222222222222222222222222-4711-floe-0-3")).unwrap();
    let ran = run(&mut rebuild_from(&root, &corpus)).expect(3);
    assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
    assert!(
        ran.stdout.contains("-own: no cache has it"),
        "{}",
        ran.stdout
    );
    assert_eq!(fs::read_to_string(own).unwrap(), "own");
}
