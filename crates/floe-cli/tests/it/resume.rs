//! Trees fetched by killed or failed runs. The next run reuses them if they are intact.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use floe_format::{NarInfo, StoreDir};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{Corpus, corpus, nixes, ran_in_pid_namespace, run, scratch, wait_until};
use serde_json::Value;

use crate::faults::nars_requested_since;
use crate::faulty_cache::{FaultyCache, assert_store_contains_exactly, faulty_cache};
use crate::kill::{install, kill, narinfo, temporary_entry_count, valid_paths};
use crate::support::floe;

/// Returns the narinfo of the path that contains `name`.
fn narinfo_named(corpus: &Corpus, name: &str) -> NarInfo {
    let path = corpus.paths.iter().find(|path| path.contains(name));
    narinfo(corpus, path.unwrap())
}

/// Reads the JSON log until all planned paths except one have finished.
fn wait_for_all_but_one(child: &mut Child) {
    let mut planned = None;
    let mut finished = 0;
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match line["event"].as_str().unwrap() {
            "planned" => planned = line["paths"].as_u64(),
            "staged" => finished += 1,
            _ => {}
        }
        if planned == Some(finished + 1) {
            return;
        }
    }
    panic!("the install ended by itself");
}

#[test]
fn paths_fetched_by_killed_runs_are_reused() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let server = FaultServer::start(&corpus.cache("xz"));
    // Nearly all paths depend on libc, so they cannot be registered without it.
    let stalled = narinfo_named(&corpus, "-libc6-");
    let half = stalled.file_size.unwrap() as usize / 2;
    server.fail(&stalled.url, Fault::Stalled(half));
    let all = corpus.paths.len();
    for number in 1..=3 {
        let since = server.requests().len();
        let mut command = install(&corpus, &server.url(), &root);
        command.args(["--log-format", "json"]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait_for_all_but_one(&mut child);
        wait_until("the stalled NAR was not requested", || {
            nars_requested_since(&server, since).contains(&stalled.url)
        });
        assert!(kill(child), "the install ended by itself");
        let asked = nars_requested_since(&server, since);
        match number {
            1 => assert_eq!(asked.len(), all),
            _ => assert_eq!(asked, [stalled.url.as_str()], "fetched again"),
        }
    }
    let valid = valid_paths(&root);
    let changed = narinfo_named(&corpus, "-zlib1g-");
    flip_byte_in_staged_tree(&root, changed.info.path.hash_part().as_str());

    server.clear_faults();
    let since = server.requests().len();
    let mut last = install(&corpus, &server.url(), &root);
    let ran = run(last.arg("--optimise")).expect(0);
    let ran = ran.stderr_contains(&format!("cannot reuse {} from", changed.info.path));
    let json = ran.json();
    assert_eq!(json["alreadyValid"], valid);
    assert_eq!(json["reusedPaths"], all as u64 - valid - 2);
    let mut asked = nars_requested_since(&server, since);
    let mut wanted = [stalled.url, changed.url];
    asked.sort();
    wanted.sort();
    assert_eq!(asked, wanted);
    assert_eq!(
        temporary_entry_count(&root),
        0,
        "temporary entries of killed runs remain"
    );
    assert_store_contains_exactly(&root, &corpus.paths.iter().cloned().collect());
}

/// A store after an install in which libc6 could not be fetched.
struct FailedInstall {
    faulty: FaultyCache,
    server: FaultServer,
    valid: BTreeSet<String>,
    kept: BTreeSet<String>,
}

fn failed_install() -> Option<FailedInstall> {
    let faulty = faulty_cache("zstd")?;
    let server = FaultServer::start(&faulty.cache);
    let libc = faulty.path("libc6");
    let late = Fault::DelayedStatus(404, FAILURE_DELAY);
    server.fail(&faulty.narinfo(&libc).url, late);
    let ran = faulty.install(&server.url()).expect(4);
    ran.stderr_contains("whose references are missing");
    let valid = faulty.paths_without(&[&libc]);
    let kept = faulty.assert_valid_paths(&valid);
    assert!(!kept.is_empty(), "no tree was kept");
    Some(FailedInstall {
        faulty,
        server,
        valid,
        kept,
    })
}

#[test]
fn kept_trees_are_garbage_to_nix() {
    if ran_in_pid_namespace() {
        return;
    }
    let nixes = nixes();
    for nix in &nixes {
        let Some(failed_install) = failed_install() else {
            return;
        };
        let FailedInstall { faulty, server, .. } = failed_install;
        nix.store(&faulty.root, ["--gc"]);
        assert_store_contains_exactly(&faulty.root, &BTreeSet::new());
        let roots = entries(&faulty.root.join("nix/var/nix/temproots"));
        assert!(roots.is_empty(), "{}: {roots:?}", nix.version);
        // The next install has no kept tree to reuse, and fetches everything.
        server.clear_faults();
        let json = faulty.install(&server.url()).expect(0).json();
        assert_eq!(
            (&json["reusedPaths"], &json["alreadyValid"]),
            (&0.into(), &0.into())
        );
    }
}

/// A collection begins with the removal of the temporary roots of dead runs. This one ends after
/// the first path that it deletes.
#[test]
fn kept_trees_are_reused_after_partial_collection() {
    for nix in &nixes() {
        let Some(failed_install) = failed_install() else {
            return;
        };
        let FailedInstall { faulty, server, .. } = failed_install;
        nix.store(&faulty.root, ["--gc", "--max-freed", "1"]);
        let state = faulty.root.join("nix/var/nix");
        assert!(entries(&state.join("temproots")).is_empty());
        let kept = temporary_entry_count(&faulty.root);
        assert_ne!(kept, 0, "{}: the collection was not partial", nix.version);
        server.clear_faults();
        let json = faulty.install(&server.url()).expect(0).json();
        assert_eq!(json["reusedPaths"], kept, "{}", nix.version);
        let all = faulty.corpus.paths.iter().cloned().collect();
        assert_store_contains_exactly(&faulty.root, &all);
        let names = entries(&state.join("db"));
        let is_record = |name: &PathBuf| name.to_string_lossy().contains("-floe-");
        assert!(!names.iter().any(is_record), "{names:?}");
    }
}

#[test]
fn kept_trees_survive_runs_without_progress() {
    let Some(failed_install) = failed_install() else {
        return;
    };
    let FailedInstall {
        faulty,
        server,
        valid,
        kept,
    } = failed_install;
    // First an unreachable cache, then one that lacks every path.
    let nowhere = server.url();
    drop(server);
    faulty.install(&nowhere).expect(4);
    assert_eq!(faulty.assert_valid_paths(&valid), kept);
    let server = FaultServer::start(&faulty.cache);
    server.fail(".narinfo", Fault::Status(404));
    faulty.install(&server.url()).expect(1);
    assert_ne!(server.fault_count(), 0);
    assert_eq!(faulty.assert_valid_paths(&valid), kept);
    server.clear_faults();
    let json = faulty.install(&server.url()).expect(0).json();
    assert_eq!(json["reusedPaths"], kept.len());
}

#[test]
fn kept_trees_are_removed_by_run_for_another_closure() {
    let Some(failed_install) = failed_install() else {
        return;
    };
    let FailedInstall {
        faulty,
        server,
        valid,
        ..
    } = failed_install;
    let gcc = StoreDir::default().full_path(&faulty.path("gcc-12-base"));
    let mut other = floe(["install", "--from", &server.url(), "--root"]);
    other.arg(&faulty.root).arg(gcc);
    run(other.args(["--trusted-public-keys", &faulty.corpus.key])).expect(0);
    assert_store_contains_exactly(&faulty.root, &valid);
}

/// Delay of the failing response. The other paths arrive in the meantime.
const FAILURE_DELAY: Duration = Duration::from_secs(5);

/// Flips a byte in a staged tree, and preserves modes and modification times.
fn flip_byte_in_staged_tree(root: &Path, hash_part: &str) {
    let is_staged_tree = |place: &PathBuf| {
        let name = place.file_name().unwrap().to_str().unwrap();
        name.starts_with(hash_part) && name.contains("-floe-")
    };
    let tree = entries(&root.join("nix/store"))
        .into_iter()
        .find(is_staged_tree);
    let file = first_file(&tree.expect("no staged tree of this path")).unwrap();
    let before = fs::metadata(&file).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    let mut contents = fs::read(&file).unwrap();
    *contents.last_mut().unwrap() ^= 1;
    fs::write(&file, contents).unwrap();
    fs::set_permissions(&file, before.permissions()).unwrap();
    let time = before.modified().unwrap();
    File::open(&file).unwrap().set_modified(time).unwrap();
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns the first non-empty file of a tree.
pub(crate) fn first_file(place: &Path) -> Option<PathBuf> {
    let found = place.symlink_metadata().unwrap();
    if found.is_dir() {
        entries(place).iter().find_map(|entry| first_file(entry))
    } else {
        (found.is_file() && found.len() > 0).then(|| place.into())
    }
}
