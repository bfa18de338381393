//! Installs from several caches. A cache that is down, slow, corrupt or closed does not affect the
//! others. Also tests the narinfo disk cache.

mod connections;
mod logins;
mod priorities;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floe_format::{Compression, StoreDir};

use crate::faulty::{Faulty, assert_verified, faulty};
use crate::server::{Fault, Server};
use crate::support::{Ran, floe, run};

/// Two caches with the same paths: one to inject faults into, and an intact one.
struct Pair {
    cache: Faulty,
    spoilt: Server,
    good: Server,
}

fn pair() -> Option<Pair> {
    let cache = faulty("zstd")?;
    Some(Pair {
        spoilt: Server::start(&cache.cache),
        good: Server::start(&cache.corpus.cache("zstd")),
        cache,
    })
}

fn install(cache: &Faulty, from: &[&str], root: &Path) -> Command {
    let mut command = floe(["install", "--json"]);
    for url in from {
        command.args(["--from", url]);
    }
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    command.arg("--root").arg(root).arg(&cache.corpus.root);
    command
}

impl Pair {
    /// Installs from both caches, the faulty one first.
    #[track_caller]
    fn install(&self) -> Ran {
        let from = [&*self.spoilt.url(), &*self.good.url()];
        let ran = run(&mut install(&self.cache, &from, &self.cache.root)).expect(0);
        assert_verified(&self.cache.root, self.cache.corpus.paths.len());
        ran
    }
}

/// Returns a URL on which no server listens.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn a_dead_cache_is_named_and_gone_without() {
    let Some(pair) = pair() else { return };
    let dead = nobody();
    let from = [&*dead, &*pair.good.url()];
    let ran = run(&mut install(&pair.cache, &from, &pair.cache.root)).expect(0);
    assert_verified(&pair.cache.root, pair.cache.corpus.paths.len());
    // floe may still be retrying the unreachable cache when the install ends, so a warning is
    // optional.
    assert!(!ran.stderr.contains("could not be moved"), "{}", ran.stderr);

    // If there is no other cache, the install fails.
    let root = pair.cache.scratch.join("alone");
    let ran = run(&mut install(&pair.cache, &[&dead, &dead], &root)).expect(4);
    assert!(ran.stderr.contains(&dead), "{}", ran.stderr);
}

#[test]
fn a_cache_that_is_none_or_closed_or_for_another_directory_is_gone_without() {
    for (fault, words) in [
        (Fault::Status(404), "is not a binary cache"),
        (Fault::Status(401), "netrc"),
    ] {
        let Some(pair) = pair() else { return };
        pair.spoilt.fail("nix-cache-info", fault.clone());
        let ran = pair.install();
        assert!(pair.spoilt.faults() >= 1);
        assert!(ran.stderr.contains("going on without"), "{}", ran.stderr);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
        assert_eq!(pair.spoilt.hits().len(), 1, "{:?}", pair.spoilt.hits());
    }
    let Some(pair) = pair() else { return };
    fs::write(
        pair.cache.cache.join("nix-cache-info"),
        "StoreDir: /other\n",
    )
    .unwrap();
    pair.install();
    assert_eq!(pair.spoilt.hits().len(), 1, "{:?}", pair.spoilt.hits());
}

#[test]
fn a_cache_that_says_nothing_holds_nobody_up() {
    for file in ["nix-cache-info", ".narinfo"] {
        let Some(pair) = pair() else { return };
        pair.spoilt.fail(file, Fault::Hang(0));
        let began = Instant::now();
        pair.install();
        assert!(pair.spoilt.faults() >= 1, "{:?}", pair.spoilt.hits());
        // A single request to the silent cache would time out only after minutes.
        assert!(began.elapsed() < Duration::from_secs(60), "{file}");
        let asked = pair.good.hits_on(".narinfo").len();
        assert_eq!(asked, pair.cache.corpus.paths.len(), "{file}");
    }
}

#[test]
fn a_cache_that_speaks_late_is_asked_for_what_the_others_lack() {
    let Some(pair) = pair() else { return };
    let path = pair.cache.path("libc6");
    let lacks = pair.good.url();
    pair.good
        .fail(&format!("{}.narinfo", path.hash_part()), Fault::Status(404));
    let slow = Fault::Slow(Duration::from_secs(3));
    pair.spoilt.fail_times("nix-cache-info", slow, 1);
    let from = [&*pair.spoilt.url(), &*lacks];
    run(&mut install(&pair.cache, &from, &pair.cache.root)).expect(0);
    assert_eq!(pair.spoilt.faults(), 1);
    assert_eq!(
        pair.spoilt.hits_on(".narinfo").len(),
        1,
        "{:?}",
        pair.spoilt.hits()
    );
    assert_verified(&pair.cache.root, pair.cache.corpus.paths.len());
}

#[test]
fn a_path_whose_nar_is_missing_cut_or_wrong_comes_from_the_next_cache() {
    for fault in [
        Fault::Status(404),
        Fault::Status(500),
        Fault::Cut(1000),
        Fault::Short(1000),
        Fault::Append(b"more".to_vec()),
    ] {
        let Some(pair) = pair() else { return };
        let path = pair.cache.path("libc6");
        let nar = pair.cache.narinfo(&path).url;
        pair.spoilt.fail(&nar, fault.clone());
        let ran = pair.install();
        assert!(pair.spoilt.faults() >= 1, "{fault:?}");
        assert!(ran.stderr.contains("retrying"), "{fault:?}: {}", ran.stderr);
        assert_eq!(pair.good.hits_on(&nar).len(), 1, "{fault:?}");
        assert_eq!(pair.good.hits_on(".narinfo").len(), 1, "{fault:?}");
    }
}

#[test]
fn a_lie_of_one_cache_is_made_up_for_by_another() {
    let Some(pair) = pair() else { return };
    let (flipped, foreign) = (pair.cache.path("libc6"), pair.cache.path("libonig5"));
    let nar = pair.cache.nar(&flipped);
    let mut body = fs::read(&nar).unwrap();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    fs::write(&nar, body).unwrap();
    pair.cache
        .edit(&foreign, |narinfo| narinfo.info.nar_size += 1);
    pair.install();
    let asked = pair.good.hits();
    let asked_for = |text: &str| asked.iter().filter(|hit| hit.path.contains(text)).count();
    assert_eq!(asked_for(&pair.cache.narinfo(&flipped).url), 1);
    assert_eq!(asked_for(foreign.hash_part()), 1);
}

/// Runs a command with the narinfo disk cache in `home`.
fn remembering(command: &mut Command, home: &Path) -> Ran {
    run(command.env("XDG_CACHE_HOME", home))
}

fn roots(cache: &Faulty) -> impl FnMut() -> PathBuf {
    let base = cache.scratch.join("stores");
    let mut number = 0;
    move || {
        number += 1;
        base.join(number.to_string())
    }
}

#[test]
fn answers_are_remembered_and_wrong_ones_forgotten() {
    let Some(cache) = faulty("zstd") else { return };
    let home = cache.scratch.join("home");
    let server = Server::start(&cache.cache);
    let mut root = roots(&cache);
    let url = server.url();
    let mut go = |code| remembering(&mut install(&cache, &[&url], &root()), &home).expect(code);
    go(0);
    let (paths, first) = (cache.corpus.paths.len(), server.hits().len());
    assert_eq!(first, 2 * paths + 1);
    go(0);
    // The second run requests only the NARs.
    assert_eq!(server.hits().len() - first, paths);
    assert_eq!(server.hits_on(".narinfo").len(), paths);

    // Recompress a NAR under another name, and delete the file that the cached narinfo names.
    let path = cache.path("libc6");
    let (old, packed) = (cache.nar(&path), cache.cache.join("nar/anew.nar"));
    let nar = zstd::decode_all(&*fs::read(&old).unwrap()).unwrap();
    fs::write(&packed, nar).unwrap();
    fs::remove_file(&old).unwrap();
    cache.edit(&path, |narinfo| {
        narinfo.url = "nar/anew.nar".into();
        narinfo.compression = Compression::None;
        (narinfo.file_hash, narinfo.file_size) = (None, None);
    });
    go(0);
    assert_eq!(server.hits_on("anew.nar").len(), 1);
    assert_eq!(server.hits_on(".narinfo").len(), paths + 1);
}

#[test]
fn what_was_refused_and_remembered_is_asked_for_once_more() {
    let Some(cache) = faulty("zstd") else { return };
    let home = cache.scratch.join("home");
    let server = Server::start(&cache.cache);
    let path = cache.path("libc6");
    let narinfo = format!("{}.narinfo", path.hash_part());
    let signed = fs::read(cache.cache.join(&narinfo)).unwrap();
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let mut root = roots(&cache);
    let url = server.url();
    let mut go = |code| remembering(&mut install(&cache, &[&url], &root()), &home).expect(code);
    let asked = || server.hits_on(&narinfo).len();
    go(3).says("is not signed by a trusted key");
    assert_eq!(asked(), 1);
    // One query per run: the narinfo is still unsigned.
    go(3).says("is not signed by a trusted key");
    assert_eq!(asked(), 2);
    fs::write(cache.cache.join(&narinfo), &signed).unwrap();
    let info = || {
        let mut command = floe(["info", "--from", &url, path.as_str()]);
        remembering(&mut command, &home).expect(0).stdout
    };
    // `floe info` always queries the cache, and stores the result in the narinfo disk cache.
    assert!(info().contains("Sig: "));
    assert_eq!(asked(), 3);
    go(0);
    assert_eq!(asked(), 3);

    // The same without `floe info` in between.
    let home = cache.scratch.join("other-home");
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let mut go = |code| remembering(&mut install(&cache, &[&url], &root()), &home).expect(code);
    go(3);
    fs::write(cache.cache.join(&narinfo), &signed).unwrap();
    go(0);
    assert_eq!(asked(), 5);
    // Cached narinfos of the other paths are still used.
    let paths = cache.corpus.paths.len();
    assert_eq!(server.hits_on(".narinfo").len(), 2 * paths + 3);
}

#[test]
fn what_is_remembered_and_no_narinfo_any_more_is_asked_for_once_more() {
    let Some(cache) = faulty("zstd") else { return };
    let home = cache.scratch.join("home");
    let server = Server::start(&cache.cache);
    let mut root = roots(&cache);
    let url = server.url();
    let mut go = || remembering(&mut install(&cache, &[&url], &root()), &home).expect(0);
    go();
    let path = cache.path("libc6");
    let remembered = rusqlite::Connection::open(home.join("floe/narinfos.sqlite")).unwrap();
    let garbage = "update narinfos set text = cast('garbage' as blob) where hash_part = ?";
    let changed = remembered.execute(garbage, [path.hash_part()]).unwrap();
    assert_eq!(changed, 1);
    let asked = || server.hits_on(".narinfo").len();
    let before = asked();
    go();
    assert_eq!(asked(), before + 1);
    // The new result is cached.
    go();
    assert_eq!(asked(), before + 1);
}

#[test]
fn a_path_that_was_missed_is_found_as_soon_as_somebody_names_it() {
    let Some(cache) = faulty("zstd") else { return };
    let home = cache.scratch.join("home");
    let server = Server::start(&cache.cache);
    let root_path = StoreDir::default().parse(&cache.corpus.root).unwrap();
    let narinfo = format!("{}.narinfo", root_path.hash_part());
    server.fail(&narinfo, Fault::Status(404));
    let mut root = roots(&cache);
    let url = server.url();
    remembering(&mut install(&cache, &[&url], &root()), &home).expect(1);
    server.heal();
    remembering(&mut install(&cache, &[&url], &root()), &home).expect(0);
    assert_eq!(server.hits_on(&narinfo).len(), 2);

    // A cached miss of a reference is not queried again at once.
    let narinfo = format!("{}.narinfo", cache.path("libc6").hash_part());
    let home = cache.scratch.join("other-home");
    server.fail(&narinfo, Fault::Status(404));
    remembering(&mut install(&cache, &[&url], &root()), &home).expect(1);
    let before = server.hits_on(&narinfo).len();
    remembering(&mut install(&cache, &[&url], &root()), &home).expect(1);
    assert_eq!(server.hits_on(&narinfo).len(), before);
}
