//! Caches that lie in the fields that no signature covers, and slow ones. A good cache beside them
//! is enough.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floe_format::path_info::OTHER_SIGNATURES_LEN_MAX;
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::http_client::hash_part;
use floe_testkit::{run, scratch, synthetic_cache};

use crate::corrupt_caches::transfers::nar_file_name;
use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// Installs from the modified cache first and from an unmodified one second.
fn install_with_good_cache(
    cache: &FaultyCache,
    server: &FaultServer,
    options: &[&str],
) -> Duration {
    let good = cache.corpus.file_url("zstd");
    let bad = format!("{}?priority=1", server.url());
    let began = Instant::now();
    run(floe(["install", "--from", &bad, "--from", &good])
        .args(["--trusted-public-keys", &cache.corpus.key, "--root"])
        .arg(&cache.root)
        .args(options)
        .arg(&cache.corpus.root))
    .expect(0);
    assert_verified(&cache.root, cache.corpus.paths.len());
    began.elapsed()
}

#[test]
fn endless_body_ends_at_a_limit_from_the_nar_size() {
    // A decoder reads skippable frames of zstd without any output.
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 1, 0][..], &[0; 0x10000]].concat();
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    for name in ["libonig5", "libc6"] {
        let path = cache.path(name);
        let nar = nar_file_name(&cache, name);
        cache.edit(&path, |narinfo| {
            narinfo.file_size = Some(1 << 50);
            narinfo.file_hash = None;
        });
        let server = FaultServer::start(&cache.cache);
        server.fail(&nar, Fault::Endless(skippable.clone()));
        install_with_good_cache(&cache, &server, &[]);
        assert!(server.fault_count() > 0, "{name}");
        // The NAR of libc6 has 13 MB, and sockets buffer a few more.
        let sent = server.endless_bytes();
        assert!(sent < 100 << 20, "{name}: {sent} bytes");
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

#[test]
fn invalid_nar_url_is_a_corrupt_narinfo() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    for url in ["http://[", "https://", "http://host:99999/x"] {
        cache.edit(&path, |narinfo| narinfo.url = url.into());
        let server = FaultServer::start(&cache.cache);
        cache.assert_install_fails_for(&server.url(), &[&path], 3, &["its URL", "is invalid"]);
        install_with_good_cache(&cache, &server, &[]);
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

#[test]
fn remembered_absence_is_queried_again_before_a_failure() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let server = FaultServer::start(&cache.cache);
    server.fail(&narinfo, Fault::Status(404));
    let install = || {
        run(floe(["install", "--from", &server.url()])
            .args(["--trusted-public-keys", &cache.corpus.key, "--root"])
            .arg(&cache.root)
            .arg(&cache.corpus.root)
            .env("XDG_CACHE_HOME", cache.scratch.join("cache-home")))
    };
    install().expect(1);
    assert_eq!(server.requests_for(&narinfo).len(), 1);
    // The second run fails too, after it has asked once more.
    install().expect(1);
    assert_eq!(server.requests_for(&narinfo).len(), 2);
    server.clear_faults();
    install().expect(0);
    assert_eq!(server.requests_for(&narinfo).len(), 3);
}

#[test]
fn dripping_server_is_given_up() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    // One body is fetched whole, the other one is streamed.
    for name in ["libonig5", "libc6"] {
        let server = FaultServer::start(&cache.cache);
        let drip = Fault::Dripping(Duration::from_millis(100));
        server.fail(&nar_file_name(&cache, name), drip);
        let options = ["stalled-download-timeout", "1", "download-attempts", "1"];
        let options = [&["--option"], &options[..2], &["--option"], &options[2..]].concat();
        install_with_good_cache(&cache, &server, &options);
        assert!(server.fault_count() > 0, "{name}");
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

#[test]
fn junk_signatures_fill_neither_database_nor_disk_cache() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let junk = |number| format!("Sig: junk-{number}:{}==\n", "A".repeat(86));
    let junk: String = (0..5000).map(junk).collect();
    for path in &cache.corpus.paths {
        let file = format!("{}.narinfo", hash_part(path));
        let file = cache.cache.join(file);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + &junk).unwrap();
    }
    let server = FaultServer::start(&cache.cache);
    let home = cache.scratch.join("cache-home");
    run(floe(["install", "--from", &server.url()])
        .args(["--trusted-public-keys", &cache.corpus.key, "--root"])
        .arg(&cache.root)
        .arg(&cache.corpus.root)
        .env("XDG_CACHE_HOME", &home))
    .expect(0);
    let len = |file: &Path| fs::metadata(file).map_or(0, |found| found.len());
    let database = cache.root.join("nix/var/nix/db/db.sqlite");
    assert!(len(&database) > 0 && len(&database) < 1 << 20);
    let floe_home = fs::read_dir(home.join("floe")).unwrap();
    let remembered: u64 = floe_home.map(|file| len(&file.unwrap().path())).sum();
    assert!(remembered < 1 << 20, "{remembered} bytes");
    let info = run(floe(["info", "--json", "--from"])
        .arg(&cache.root)
        .arg(&cache.corpus.root))
    .expect(0)
    .json();
    let signatures = &info[&cache.corpus.root]["signatures"];
    let signatures = signatures.as_array().unwrap();
    let len: usize = signatures.iter().map(|it| it.as_str().unwrap().len()).sum();
    assert!(
        (2..=2 * OTHER_SIGNATURES_LEN_MAX).contains(&len),
        "{len} bytes"
    );
}

/// Copies the closure into another cache with these additional signatures in each narinfo, as a
/// user who does not trust the key of the corpus. Returns the directory of the new cache and what
/// the copy has printed.
fn copy_with_signatures(cache: &FaultyCache, added: &str) -> (PathBuf, String) {
    for path in &cache.corpus.paths {
        let file = format!("{}.narinfo", hash_part(path));
        let file = cache.cache.join(file);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + added).unwrap();
    }
    let target = cache.scratch.join("target");
    let to = format!("file://{}?compression=none", target.display());
    let from = cache.file_url();
    let copied = run(&mut floe([
        "copy",
        "--from",
        &from,
        "--to",
        &to,
        &cache.corpus.root,
    ]));
    (target, copied.expect(0).stderr)
}

/// Returns a line with a signature that no key has made. Its name comes before that of the corpus.
fn forged(number: usize) -> String {
    format!("Sig: a-{number}:{}==\n", "A".repeat(86))
}

#[test]
fn true_signature_after_forged_ones_survives_a_copy() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let added: String = (0..8).map(forged).collect();
    let (target, stderr) = copy_with_signatures(&cache, &added);
    assert!(!stderr.contains("signature"), "{stderr}");
    let from = format!("file://{}", target.display());
    cache.install(&from).expect(0);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn copy_of_hundreds_of_signatures_is_bounded_and_reported() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let added: String = (0..500).map(forged).collect();
    let (target, stderr) = copy_with_signatures(&cache, &added);
    for path in &cache.corpus.paths {
        let narinfo = target.join(format!("{}.narinfo", hash_part(path)));
        let text = fs::read_to_string(narinfo).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("Sig: "));
        let kept = lines.clone().count();
        let len: usize = lines.map(|line| line.len() - "Sig: ".len()).sum();
        assert!(kept > 8 && len <= OTHER_SIGNATURES_LEN_MAX, "{len} bytes");
        let name = path.strip_prefix("/nix/store/").unwrap();
        let said = format!("dropping {} signatures of {name}", 501 - kept);
        assert!(stderr.contains(&said), "{said}: {stderr}");
    }
}

#[test]
fn thousands_of_missing_references_print_few_lines() {
    let scratch = scratch();
    let cache = scratch.join("cache");
    synthetic_cache::create(&cache, 1, |_| (1..=3000).collect());
    let install = |options: &[&str]| {
        let mut command = floe(["install", "--no-check-sigs", "--from"]);
        command.arg(format!("file://{}", cache.display()));
        command.arg("--root").arg(scratch.join("root"));
        run(command.args(options).arg(synthetic_cache::path(0).as_str()))
    };
    let text = install(&[]).expect(1).stderr;
    assert!(text.lines().count() < 30, "{text}");
    assert!(text.contains("floe: 2980 more failures"), "{text}");
    assert!(text.contains("1 other path needs them"), "{text}");
    let verbose = install(&["-v"]).expect(1).stderr;
    assert!(verbose.contains(" and 2980 more\n"), "{verbose}");
    assert!(text.contains("failed to copy 3001 paths"), "{text}");
    let json = install(&["--log-format", "json"]).expect(1).stderr;
    let failed = json.lines().filter(|line| line.contains("\"failed\""));
    assert!(failed.count() >= 3001, "{json}");
}
