//! Peak memory use of an install and of a push.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use floe_format::{Compression, Hash, NarInfo, PathInfo, StoreDir};
use floe_hash::idle_cores::IdleCores;
use floe_testkit::{XorShift, corpora, nars, nginx, run, scratch, synthetic_cache};
use floe_transfer::codec::{self, Encoder as _, ZstdFrames};

use crate::support::floe;

/// Returns the peak resident memory of a child in bytes, or `None` if it has ended.
fn peak_memory(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Runs a command that must succeed. Returns its peak resident memory in bytes.
fn run_and_measure(command: &mut Command) -> u64 {
    command.stderr(Stdio::null());
    let (status, max) = measure(command);
    assert!(status.success(), "{command:?}");
    max
}

/// Runs a command. Returns its status and its peak resident memory in bytes.
pub(crate) fn measure(command: &mut Command) -> (ExitStatus, u64) {
    command.stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let (mut max, mut samples) = (0, 0);
    while child.try_wait().unwrap().is_none() {
        if let Some(peak_memory) = peak_memory(&child) {
            (max, samples) = (peak_memory, samples + 1);
        }
        // The memory is sampled.
        thread::sleep(SAMPLE_INTERVAL);
    }
    let measured = format!("{command:?}: {max} bytes, {samples} samples");
    assert!(samples > 0 && max > MIB, "{measured}");
    (child.wait().unwrap(), max)
}

#[test]
fn install_uses_less_than_160_mib() {
    for corpus in corpora() {
        let Some(server) = nginx(&corpus.dir, "") else {
            return;
        };
        for compression in ["none", "zstd", "xz"] {
            let root = scratch();
            let from = format!("{}/cache-{compression}", server.url());
            let mut command = floe(["install", "--from", &from, "--root"]);
            command
                .arg(root.path())
                .args(["--trusted-public-keys", &corpus.key]);
            let max = run_and_measure(command.arg(&corpus.root));
            assert!(max < 160 * MIB, "{} from {compression}: {max}", corpus.root);
        }
    }
}

/// Creates a cache of `count` paths with the same large contents, whose bodies workers decode more
/// slowly than a local server sends them. Their windows have 8 MiB.
fn create_cache_of_large_paths(directory: &Path, count: usize) {
    let contents = contents(NAR_LEN);
    let (nar, mut body) = (nars::file(&contents), Vec::new());
    let mut encoder = codec::encoder(Compression::Xz, Some(5), &mut body)
        .unwrap()
        .unwrap();
    encoder.write_all(&nar).unwrap();
    encoder.finish().unwrap();
    create_cache(directory, count, (&nar, &body, Compression::Xz));
}

/// Returns contents that an encoder compresses fast.
fn contents(len: usize) -> Vec<u8> {
    let mut random = XorShift(1);
    let mut word = |_| random.below(usize::MAX).to_le_bytes();
    let words: Vec<[u8; 8]> = (0..1 << 13).map(&mut word).collect();
    // The encoder finds each word shortly before, so this is fast.
    let word = |_| words[random.below(words.len())];
    (0..len / 8).flat_map(word).collect()
}

/// Creates a cache of `count` paths, each with the same NAR. Each refers to the one before it.
fn create_cache(
    directory: &Path,
    count: usize,
    (nar, body, compression): (&[u8], &[u8], Compression),
) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    fs::write(directory.join("nar"), body).unwrap();
    for number in 0..count {
        let path = synthetic_cache::path(number);
        let reference = number.checked_sub(1).map(synthetic_cache::path);
        let file = directory.join(format!("{}.narinfo", path.hash_part()));
        let narinfo = NarInfo {
            info: PathInfo {
                path,
                nar_hash: Hash::sha256(floe_hash::sha256(nar)),
                nar_size: nar.len() as u64,
                references: reference.into_iter().collect(),
                deriver: None,
                signatures: BTreeSet::new(),
                ca: None,
                registration_time: None,
                ultimate: false,
            },
            url: "nar".into(),
            compression,
            file_hash: Some(Hash::sha256(floe_hash::sha256(body))),
            file_size: Some(body.len() as u64),
        };
        fs::write(file, narinfo.to_text(&StoreDir::default())).unwrap();
    }
}

#[test]
fn install_with_16_jobs_uses_less_than_240_mib() {
    let scratch = scratch();
    let (cache, root) = (scratch.join("cache"), scratch.join("root"));
    create_cache_of_large_paths(&cache, 32);
    let Some(server) = nginx(&cache, "") else {
        return;
    };
    let (last, url) = (synthetic_cache::path(31), server.url());
    let mut command = floe(["install", "--from", &url, "--no-check-sigs", "--jobs", "16"]);
    command.arg("--root").arg(&root).arg(last.as_str());
    let max = run_and_measure(&mut command);
    assert!(max < 240 * MIB, "{max}");
}

/// A single path leaves the other cores idle, so they decompress its frames. Two paths could keep
/// both cores of a small machine busy until the end.
#[test]
fn install_of_large_frames_uses_what_the_documents_say() {
    let scratch = scratch();
    let (cache, root) = (scratch.join("cache"), scratch.join("root"));
    let (nar, mut body) = (
        nars::file(&contents(12 * codec::ZSTD_FRAME_LEN)),
        Vec::new(),
    );
    let no_cores = Arc::new(IdleCores::none());
    let mut encoder = Box::new(ZstdFrames::new(&mut body, Some(1), no_cores).unwrap());
    encoder.write_all(&nar).unwrap();
    encoder.finish().unwrap();
    create_cache(&cache, 1, (&nar, &body, Compression::Zstd));
    let from = format!("file://{}", cache.display());
    let mut command = floe(["install", "--from", &from, "--no-check-sigs", "--root"]);
    command.arg(&root).arg(synthetic_cache::path(0).as_str());
    let max = run_and_measure(&mut command);
    let cores = thread::available_parallelism().unwrap().get() as u64;
    let frames = (64 + 24 * cores).min(512) * MIB;
    assert!(max < 160 * MIB + frames, "{max}");
    // At least one frame was in memory as a whole.
    assert!(cores == 1 || max > 32 * MIB, "{max}");
}

#[test]
fn push_uses_no_more_memory_than_documented() {
    let scratch = scratch();
    let (cache, root, target) = (
        scratch.join("cache"),
        scratch.join("root"),
        scratch.join("target"),
    );
    create_cache_of_large_paths(&cache, 16);
    let from = format!("file://{}", cache.display());
    let mut install = floe(["install", "--from", &from, "--no-check-sigs", "--root"]);
    let last = synthetic_cache::path(15);
    run(install.arg(&root).arg(last.as_str())).expect(0);
    fs::create_dir(&target).unwrap();
    let methods = "dav_methods PUT; create_full_put_path on; client_max_body_size 0;";
    let Some(server) = nginx(&target, methods) else {
        return;
    };
    for (jobs, most) in [(2, 200), (16, 256)] {
        // Each worker may have a frame of zstd, and its compressed form.
        for (compression, frames) in [("none", 0), ("zstd", jobs * 32)] {
            let (most, directory) = (most + frames, format!("{compression}-{jobs}"));
            let to = format!("{}/{directory}?compression={compression}", server.url());
            let mut command = floe(["push", "--to", &to, "--jobs", &jobs.to_string(), "--root"]);
            let max = run_and_measure(command.arg(&root).arg(last.as_str()));
            assert!(max < most * MIB, "{directory}: {max}");
        }
    }
}

const MIB: u64 = 1024 * 1024;

/// Frequent enough for the shortest install, without noticeable load.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);

/// Twice the window.
const NAR_LEN: usize = 16 * 1024 * 1024;

/// Fills the database of a new store with rows. Each path refers to some of those before it. Every
/// second one has a file.
fn generate_store(root: &Path, paths: usize) {
    let layout = floe_store::StoreLayout::in_root(root, StoreDir::default());
    drop(floe_store::StoreWriter::open(layout.clone()).unwrap());
    let database = rusqlite::Connection::open(layout.database_dir().join("db.sqlite")).unwrap();
    database
        .execute_batch("pragma synchronous = off; begin")
        .unwrap();
    let mut insert = database
        .prepare(
            "insert into ValidPaths (path, hash, registrationTime, narSize) values (?, ?, 1, 120)",
        )
        .unwrap();
    let hash = format!("sha256:{}", "0".repeat(64));
    for number in 0..paths {
        let name = format!("{number:032}-a-name-of-the-usual-length-1.2.3");
        insert
            .execute((format!("/nix/store/{name}"), &hash))
            .unwrap();
        if number % 2 == 0 {
            fs::write(layout.real_store_dir.join(name), "").unwrap();
        }
    }
    let references = "insert into Refs select a.id, b.id from ValidPaths a join ValidPaths b \
                      on b.id between a.id - 10 and a.id - 1";
    database.execute(references, ()).unwrap();
    drop(insert);
    database.execute_batch("commit").unwrap();
}

#[test]
fn lists_and_collection_of_200_000_paths_use_little_memory() {
    let scratch = scratch();
    let root = scratch.join("root");
    generate_store(&root, 200_000);
    for (arguments, most) in [
        (&["info", "--all"][..], 60),
        (&["info", "--all", "--json"], 60),
        (&["list", "--all"], 250),
    ] {
        let mut command = floe(arguments);
        let max = run_and_measure(command.arg("--root").arg(&root));
        assert!(max < most * MIB, "{arguments:?}: {max}");
    }
    let json = run(floe(["info", "--all", "--json", "--root"]).arg(&root)).expect(0);
    let json = json.json();
    let paths: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(paths.len(), 200_000);
    assert!(paths.is_sorted());
    let plain = run(floe(["info", "--all", "--root"]).arg(&root)).expect(0);
    let lines = plain.stdout.lines();
    let listed = lines.filter_map(|line| line.strip_prefix("StorePath: "));
    assert!(listed.eq(paths.iter().map(|path| path.as_str())));
    for arguments in [&["gc", "--dry-run"][..], &["gc"]] {
        let mut command = floe(arguments);
        let max = run_and_measure(command.arg("--root").arg(&root));
        assert!(max < 150 * MIB, "{arguments:?}: {max}");
    }
    let left = fs::read_dir(root.join("nix/store")).unwrap().count();
    assert_eq!(left, 1);
}
