//! Trees fetched by killed or failed runs. The next run reuses them if they are intact.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{NarInfo, StoreDir};
use serde_json::Value;

use crate::faults::nars_since;
use crate::faulty::{Faulty, assert_holds_exactly, faulty};
use crate::kills::{install, kill, narinfo, unfinished, valid_paths};
use crate::server::{Fault, Server};
use crate::support::{Corpus, corpus, floe, nixes, run, scratch};

/// Returns the narinfo of the path that contains `name`.
fn named(corpus: &Corpus, name: &str) -> NarInfo {
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
fn what_killed_runs_had_fetched_is_not_fetched_again() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    let server = Server::start(&corpus.cache("xz"));
    // Nearly all paths depend on libc, so they cannot be registered without it.
    let hangs = named(&corpus, "-libc6-");
    let half = hangs.file_size.unwrap() as usize / 2;
    server.fail(&hangs.url, Fault::Hang(half));
    let all = corpus.paths.len();
    for number in 1..=3 {
        let since = server.hits().len();
        let mut command = install(&corpus, &server.url(), &root);
        command.args(["--log-format", "json"]);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait_for_all_but_one(&mut child);
        let began = Instant::now();
        while !nars_since(&server, since).contains(&hangs.url) {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "the stalled NAR was not requested"
            );
            thread::sleep(Duration::from_millis(5));
        }
        assert!(kill(child), "the install ended by itself");
        let asked = nars_since(&server, since);
        match number {
            1 => assert_eq!(asked.len(), all),
            _ => assert_eq!(asked, [hangs.url.as_str()], "fetched again"),
        }
    }
    let valid = valid_paths(&root);
    let changed = named(&corpus, "-zlib1g-");
    change(&root, changed.info.path.hash_part());

    server.heal();
    let since = server.hits().len();
    let mut last = install(&corpus, &server.url(), &root);
    let ran = run(last.arg("--optimise")).expect(0);
    let ran = ran.says(&format!("{} is not taken from", changed.info.path));
    let json = ran.json();
    assert_eq!(json["alreadyValid"], valid);
    assert_eq!(json["reusedPaths"], all as u64 - valid - 2);
    let mut asked = nars_since(&server, since);
    let mut wanted = [hangs.url, changed.url];
    asked.sort();
    wanted.sort();
    assert_eq!(asked, wanted);
    assert_eq!(
        unfinished(&root),
        0,
        "temporary entries of killed runs remain"
    );
    assert_holds_exactly(&root, &corpus.paths.iter().cloned().collect());
}

/// A store after an install in which libc6 could not be fetched.
struct Failed {
    faulty: Faulty,
    server: Server,
    valid: BTreeSet<String>,
    left: BTreeSet<String>,
}

fn failed() -> Option<Failed> {
    let faulty = faulty("zstd")?;
    let server = Server::start(&faulty.cache);
    let libc = faulty.path("libc6");
    let late = Fault::LateStatus(404, MEANWHILE);
    server.fail(&faulty.narinfo(&libc).url, late);
    let ran = faulty.install(&server.url()).expect(4);
    ran.says("cannot be valid yet");
    let valid = faulty.without(&[&libc]);
    let left = faulty.assert_holds(&valid);
    assert!(!left.is_empty(), "no tree was kept");
    Some(Failed {
        faulty,
        server,
        valid,
        left,
    })
}

#[test]
fn what_a_failed_run_has_left_is_garbage_to_nix() {
    let nixes = nixes();
    for nix in &nixes {
        let Some(failed) = failed() else { return };
        let Failed { faulty, server, .. } = failed;
        nix.store(&faulty.root, ["--gc"]);
        assert_holds_exactly(&faulty.root, &BTreeSet::new());
        let roots = entries(&faulty.root.join("nix/var/nix/temproots"));
        assert!(roots.is_empty(), "{}: {roots:?}", nix.version);
        // The next install has no kept tree to reuse, and fetches everything.
        server.heal();
        let json = faulty.install(&server.url()).expect(0).json();
        assert_eq!(
            (&json["reusedPaths"], &json["alreadyValid"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn what_is_left_outlives_runs_that_get_nowhere() {
    let Some(failed) = failed() else { return };
    let Failed {
        faulty,
        server,
        valid,
        left,
    } = failed;
    // First an unreachable cache, then one that lacks every path.
    let nowhere = server.url();
    drop(server);
    faulty.install(&nowhere).expect(4);
    assert_eq!(faulty.assert_holds(&valid), left);
    let server = Server::start(&faulty.cache);
    server.fail(".narinfo", Fault::Status(403));
    faulty.install(&server.url()).expect(1);
    assert_ne!(server.faults(), 0);
    assert_eq!(faulty.assert_holds(&valid), left);
    server.heal();
    let json = faulty.install(&server.url()).expect(0).json();
    assert_eq!(json["reusedPaths"], left.len());
}

#[test]
fn what_is_left_for_one_closure_goes_with_the_next_run_for_another() {
    let Some(failed) = failed() else { return };
    let Failed {
        faulty,
        server,
        valid,
        ..
    } = failed;
    let gcc = StoreDir::default().full_path(&faulty.path("gcc-12-base"));
    let mut other = floe(["install", "--from", &server.url(), "--root"]);
    other.arg(&faulty.root).arg(gcc);
    run(other.args(["--trusted-public-keys", &faulty.corpus.key])).expect(0);
    assert_holds_exactly(&faulty.root, &valid);
}

/// Delay of the failing response. The other paths arrive in the meantime.
const MEANWHILE: Duration = Duration::from_secs(5);

/// Flips a byte in a staged tree, and preserves modes and modification times.
fn change(root: &Path, hash_part: &str) {
    let is_left = |place: &PathBuf| {
        let name = place.file_name().unwrap().to_str().unwrap();
        name.starts_with(hash_part) && name.contains("-floe-")
    };
    let tree = entries(&root.join("nix/store")).into_iter().find(is_left);
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
fn first_file(place: &Path) -> Option<PathBuf> {
    let found = place.symlink_metadata().unwrap();
    match found.is_dir() {
        true => entries(place).iter().find_map(|entry| first_file(entry)),
        false => (found.is_file() && found.len() > 0).then(|| place.into()),
    }
}
