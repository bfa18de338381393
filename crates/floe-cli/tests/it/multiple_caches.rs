//! Installs from several caches. A cache that is down, slow, corrupt or closed does not affect the
//! others. Also tests the narinfo disk cache.

mod connection_limit;
mod credentials;
mod priorities;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floe_format::{Compression, StoreDir};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, run};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// Two caches with the same paths: one to inject faults into, and an intact one.
struct Pair {
    cache: FaultyCache,
    faulty: FaultServer,
    intact: FaultServer,
}

fn pair() -> Option<Pair> {
    let cache = faulty_cache("zstd")?;
    Some(Pair {
        faulty: FaultServer::start(&cache.cache),
        intact: FaultServer::start(&cache.corpus.cache("zstd")),
        cache,
    })
}

fn install(cache: &FaultyCache, from: &[&str], root: &Path) -> Command {
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
    fn install(&self) -> CommandOutput {
        let from = [&*self.faulty.url(), &*self.intact.url()];
        let ran = run(&mut install(&self.cache, &from, &self.cache.root)).expect(0);
        assert_verified(&self.cache.root, self.cache.corpus.paths.len());
        ran
    }
}

/// Returns a URL on which no server listens.
fn unused_url() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[test]
fn unreachable_cache_is_skipped_unless_it_is_the_only_one() {
    let Some(pair) = pair() else { return };
    let dead = unused_url();
    let from = [&*dead, &*pair.intact.url()];
    let ran = run(&mut install(&pair.cache, &from, &pair.cache.root)).expect(0);
    assert_verified(&pair.cache.root, pair.cache.corpus.paths.len());
    // floe may still be retrying the unreachable cache when the install ends, so a warning is
    // optional.
    assert!(!ran.stderr.contains("failed to copy"), "{}", ran.stderr);

    // If there is no other cache, the install fails.
    let root = pair.cache.scratch.join("alone");
    let ran = run(&mut install(&pair.cache, &[&dead, &dead], &root)).expect(4);
    assert!(ran.stderr.contains(&dead), "{}", ran.stderr);
}

#[test]
fn skipped_cache_is_named_if_the_target_fails() {
    let Some(pair) = pair() else { return };
    let missing = format!("file://{}", pair.cache.scratch.join("missing").display());
    let file = pair.cache.scratch.join("file");
    fs::write(&file, "").unwrap();
    let from = [&*missing, &*pair.intact.url()];
    let ran = run(&mut install(&pair.cache, &from, &file)).expect(1);
    let warning = format!("skipping source {missing}");
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
    assert!(ran.stderr.contains("cannot"), "{}", ran.stderr);
}

#[test]
fn missing_closed_or_foreign_cache_is_skipped() {
    for (fault, words) in [
        (Fault::Status(404), "as a binary cache"),
        (Fault::Status(401), "netrc"),
    ] {
        let Some(pair) = pair() else { return };
        pair.faulty.fail("nix-cache-info", fault.clone());
        let ran = pair.install();
        assert!(pair.faulty.fault_count() >= 1);
        assert!(ran.stderr.contains("skipping source"), "{}", ran.stderr);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
        assert_eq!(
            pair.faulty.requests().len(),
            1,
            "{:?}",
            pair.faulty.requests()
        );
    }
    let Some(pair) = pair() else { return };
    fs::write(
        pair.cache.cache.join("nix-cache-info"),
        "StoreDir: /other\n",
    )
    .unwrap();
    let ran = pair.install();
    let said = "its paths are for /other, but the target is for /nix/store";
    assert_eq!(ran.stderr.matches(said).count(), 1, "{}", ran.stderr);
    assert_eq!(
        pair.faulty.requests().len(),
        1,
        "{:?}",
        pair.faulty.requests()
    );
}

#[test]
fn cache_without_usable_narinfos_is_named_once() {
    for (page, says) in [
        ("<html>log in</html>\n", "a web page came instead"),
        ("{}\n", "has no colon"),
        ("", "StorePath is missing"),
    ] {
        let Some(pair) = pair() else { return };
        let page = Fault::OtherBody(page.into());
        pair.faulty.fail(".narinfo", page);
        let ran = pair.install();
        assert!(pair.faulty.fault_count() >= 2);
        let warning = format!("using the other sources instead of {}", pair.faulty.url());
        assert_eq!(ran.stderr.matches(&warning).count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn silent_cache_does_not_delay_install() {
    for file in ["nix-cache-info", ".narinfo"] {
        let Some(pair) = pair() else { return };
        pair.faulty.fail(file, Fault::Stalled(0));
        let began = Instant::now();
        pair.install();
        assert!(
            pair.faulty.fault_count() >= 1,
            "{:?}",
            pair.faulty.requests()
        );
        // A single request to the silent cache would time out only after minutes.
        assert!(began.elapsed() < Duration::from_secs(60), "{file}");
        let requested = pair.intact.requests_for(".narinfo").len();
        assert_eq!(requested, pair.cache.corpus.paths.len(), "{file}");
    }
}

#[test]
fn cache_that_answers_late_supplies_missing_paths() {
    let Some(pair) = pair() else { return };
    let path = pair.cache.path("libc6");
    let incomplete = pair.intact.url();
    pair.intact
        .fail(&format!("{}.narinfo", path.hash_part()), Fault::Status(404));
    let slow = Fault::Delayed(Duration::from_secs(3));
    pair.faulty.fail_times("nix-cache-info", slow, 1);
    let from = [&*pair.faulty.url(), &*incomplete];
    run(&mut install(&pair.cache, &from, &pair.cache.root)).expect(0);
    assert_eq!(pair.faulty.fault_count(), 1);
    assert_eq!(
        pair.faulty.requests_for(".narinfo").len(),
        1,
        "{:?}",
        pair.faulty.requests()
    );
    assert_verified(&pair.cache.root, pair.cache.corpus.paths.len());
}

#[test]
fn broken_nar_is_fetched_from_the_next_cache() {
    for fault in [
        Fault::Status(404),
        Fault::Status(500),
        Fault::Truncated(1000),
        Fault::ShortBody(1000),
        Fault::ExtraBytes(b"more".to_vec()),
    ] {
        let Some(pair) = pair() else { return };
        let path = pair.cache.path("libc6");
        let nar = pair.cache.narinfo(&path).url;
        pair.faulty.fail(&nar, fault.clone());
        let ran = pair.install();
        assert!(pair.faulty.fault_count() >= 1, "{fault:?}");
        assert!(ran.stderr.contains("retrying"), "{fault:?}: {}", ran.stderr);
        assert_eq!(pair.intact.requests_for(&nar).len(), 1, "{fault:?}");
        assert_eq!(pair.intact.requests_for(".narinfo").len(), 1, "{fault:?}");
    }
}

#[test]
fn corrupt_path_in_one_cache_is_fetched_from_another() {
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
    let requested = pair.intact.requests();
    let request_count = |text: &str| {
        requested
            .iter()
            .filter(|request| request.path.contains(text))
            .count()
    };
    assert_eq!(request_count(&pair.cache.narinfo(&flipped).url), 1);
    assert_eq!(request_count(foreign.hash_part().as_str()), 1);
}

/// Runs a command with the narinfo disk cache in `home`.
fn run_with_cache_home(command: &mut Command, home: &Path) -> CommandOutput {
    run(command.env("XDG_CACHE_HOME", home))
}

fn numbered_roots(cache: &FaultyCache) -> impl FnMut() -> PathBuf {
    let base = cache.scratch.join("stores");
    let mut number = 0;
    move || {
        number += 1;
        base.join(number.to_string())
    }
}

#[test]
fn cached_narinfos_are_reused_and_stale_ones_replaced() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let home = cache.scratch.join("home");
    let server = FaultServer::start(&cache.cache);
    let mut root = numbered_roots(&cache);
    let url = server.url();
    let mut install_next =
        |code| run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(code);
    install_next(0);
    let (paths, first) = (cache.corpus.paths.len(), server.requests().len());
    assert_eq!(first, 2 * paths + 1);
    install_next(0);
    // The second run requests only the NARs.
    assert_eq!(server.requests().len() - first, paths);
    assert_eq!(server.requests_for(".narinfo").len(), paths);

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
    install_next(0);
    assert_eq!(server.requests_for("anew.nar").len(), 1);
    assert_eq!(server.requests_for(".narinfo").len(), paths + 1);
}

#[test]
fn rejected_cached_narinfo_is_queried_once_more() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let home = cache.scratch.join("home");
    let server = FaultServer::start(&cache.cache);
    let path = cache.path("libc6");
    let narinfo = format!("{}.narinfo", path.hash_part());
    let signed = fs::read(cache.cache.join(&narinfo)).unwrap();
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let mut root = numbered_roots(&cache);
    let url = server.url();
    let mut install_next =
        |code| run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(code);
    let requested = || server.requests_for(&narinfo).len();
    install_next(3).stderr_contains("cannot trust");
    assert_eq!(requested(), 1);
    // One query per run: the narinfo is still unsigned.
    install_next(3).stderr_contains("cannot trust");
    assert_eq!(requested(), 2);
    fs::write(cache.cache.join(&narinfo), &signed).unwrap();
    let info = || {
        let mut command = floe(["info", "--from", &url, path.as_str()]);
        run_with_cache_home(&mut command, &home).expect(0).stdout
    };
    // `floe info` always queries the cache, and stores the result in the narinfo disk cache.
    assert!(info().contains("Sig: "));
    assert_eq!(requested(), 3);
    install_next(0);
    assert_eq!(requested(), 3);

    // The same without `floe info` in between.
    let home = cache.scratch.join("other-home");
    cache.edit(&path, |narinfo| narinfo.info.signatures.clear());
    let mut install_next =
        |code| run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(code);
    install_next(3);
    fs::write(cache.cache.join(&narinfo), &signed).unwrap();
    install_next(0);
    assert_eq!(requested(), 5);
    // Cached narinfos of the other paths are still used.
    let paths = cache.corpus.paths.len();
    assert_eq!(server.requests_for(".narinfo").len(), 2 * paths + 3);
}

#[test]
fn corrupt_cached_narinfo_is_queried_again() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let home = cache.scratch.join("home");
    let server = FaultServer::start(&cache.cache);
    let mut root = numbered_roots(&cache);
    let url = server.url();
    let mut install_next =
        || run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(0);
    install_next();
    let path = cache.path("libc6");
    let disk_cache = rusqlite::Connection::open(home.join("floe/narinfos.sqlite")).unwrap();
    let garbage = "update objects set contents = cast('garbage' as blob) where name = ?";
    let narinfo = format!("{}.narinfo", path.hash_part());
    let changed = disk_cache.execute(garbage, [narinfo]).unwrap();
    assert_eq!(changed, 1);
    let requested = || server.requests_for(".narinfo").len();
    let before = requested();
    install_next();
    assert_eq!(requested(), before + 1);
    // The new result is cached.
    install_next();
    assert_eq!(requested(), before + 1);
}

#[test]
fn cached_miss_is_queried_again_for_requested_path() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let home = cache.scratch.join("home");
    let server = FaultServer::start(&cache.cache);
    let root_path = StoreDir::default().parse(&cache.corpus.root).unwrap();
    let narinfo = format!("{}.narinfo", root_path.hash_part());
    server.fail(&narinfo, Fault::Status(404));
    let mut root = numbered_roots(&cache);
    let url = server.url();
    run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(1);
    server.clear_faults();
    run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(0);
    assert_eq!(server.requests_for(&narinfo).len(), 2);

    // A cached miss of a reference is queried again before it fails the run.
    let narinfo = format!("{}.narinfo", cache.path("libc6").hash_part());
    let home = cache.scratch.join("other-home");
    server.fail(&narinfo, Fault::Status(404));
    run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(1);
    let before = server.requests_for(&narinfo).len();
    run_with_cache_home(&mut install(&cache, &[&url], &root()), &home).expect(1);
    assert_eq!(server.requests_for(&narinfo).len(), before + 1);
}

#[test]
fn refresh_queries_cache_again_and_remembers_the_replies() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let home = cache.scratch.join("home");
    let server = FaultServer::start(&cache.cache);
    let mut seen = 0;
    let mut requests_of = |args: &[&str], code: i32| {
        run_with_cache_home(floe(args).arg(&cache.corpus.root), &home).expect(code);
        let requests = server.requests();
        let new: Vec<String> = requests[seen..].iter().map(|it| it.path.clone()).collect();
        seen = requests.len();
        new
    };
    let url = server.url();
    let info = ["info", "-r", "--from", &url];
    let count = cache.corpus.paths.len();
    assert_eq!(requests_of(&info, 0).len(), count + 1);
    // floe info always queries the named path itself.
    assert_eq!(requests_of(&info, 0).len(), 1);
    let refreshed = requests_of(&[&info[..], &["--refresh"]].concat(), 0);
    assert_eq!(refreshed.len(), count + 1, "{refreshed:?}");
    assert!(
        refreshed.contains(&"/nix-cache-info".to_owned()),
        "{refreshed:?}"
    );
    assert_eq!(requests_of(&info, 0).len(), 1);

    let key = &cache.key.public().to_string();
    let root = cache.scratch.join("target").display().to_string();
    let trust = ["--trusted-public-keys", key, "--root", &root];
    let install = [&["install", "--dry-run", "--from", &url][..], &trust].concat();
    assert_eq!(requests_of(&install, 0), [] as [String; 0]);
    assert_eq!(
        requests_of(&[&install[..], &["--refresh"]].concat(), 0).len(),
        count + 1
    );
}
