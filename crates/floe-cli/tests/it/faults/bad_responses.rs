//! Servers that stall, close the connection within a response head, or send invalid narinfos.

use std::fs;
use std::process::Command;
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, run};

use super::assert_fetched_only_missing;
use crate::faulty_cache::{FaultyCache, assert_store_contains_exactly, faulty_cache};
use crate::support::floe;

/// Installs everything with a stall timeout of one second.
fn install(cache: &FaultyCache, server: &FaultServer) -> CommandOutput {
    let mut command = floe(["install", "--json", "--from", &server.url(), "--root"]);
    command.arg(&cache.root).arg(&cache.corpus.root);
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    run(command.args(["--option", "stalled-download-timeout", "1"]))
}

/// Returns how often this fault was injected into requests whose path ends with `suffix`.
fn fault_count_for(server: &FaultServer, suffix: &str, fault: &Fault) -> usize {
    let requests = server.requests_for(suffix);
    let requests = requests
        .iter()
        .filter(|request| request.fault.as_ref() == Some(fault));
    requests.count()
}

/// One file of each kind that floe requests: nix-cache-info, a narinfo, a NAR that is prefetched
/// whole, and one that is streamed.
fn requested_files(cache: &FaultyCache) -> [String; 4] {
    let onig = cache.path("libonig5");
    let nar = |name: &str| cache.narinfo(&cache.path(name)).url;
    [
        "nix-cache-info".into(),
        format!("{}.narinfo", onig.hash_part()),
        nar("libonig5"),
        nar("libc6"),
    ]
}

#[test]
fn stalled_response_times_out_and_is_retried() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    for file in requested_files(&cache) {
        let server = FaultServer::start(&cache.cache);
        // All of the files are longer, so the response stalls in the middle.
        let fault = Fault::Stalled(20);
        server.fail_times(&file, fault.clone(), 1);
        let ran = install(&cache, &server).expect(0);
        assert_eq!(fault_count_for(&server, &file, &fault), 1);
        let requests = server.requests_for(&file);
        let delay = requests[1].at - requests[0].at;
        assert_eq!(requests.len(), 2, "{file}");
        // A narinfo is requested again before the timeout.
        assert!(delay >= Duration::from_millis(450), "{file}: {delay:?}");
        assert!(delay < Duration::from_secs(20), "{file}: {delay:?}");
        if file.starts_with("nar/") {
            ran.stderr_contains("retrying")
                .stderr_contains("nothing arrived for 1 seconds");
        }
        assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

#[test]
fn stalled_large_nar_resumes_where_it_stopped() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let nar = cache.narinfo(&cache.path("libc6")).url;
    let server = FaultServer::start(&cache.cache).with_validators();
    let fault = Fault::Stalled(2_000_000);
    server.fail_times(&nar, fault.clone(), 1);
    install(&cache, &server).expect(0);
    assert_eq!(fault_count_for(&server, &nar, &fault), 1);
    let requests = server.requests_for(&nar);
    let header_values = |name: &str| -> Vec<_> {
        let requests = requests.iter();
        requests
            .map(|request| request.fields.get(name).cloned())
            .collect()
    };
    assert_eq!(
        header_values("range"),
        [None, Some("bytes=2000000-".into())]
    );
    // A range of a compressed representation could not be appended.
    assert_eq!(
        header_values("accept-encoding")[1].as_deref(),
        Some("identity")
    );
    assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
}

/// floe counts decompressed bytes, but the server would resume in the compressed ones.
#[test]
fn truncated_gzip_encoded_nar_restarts_from_the_beginning() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let path = cache.path("libc6");
    let nar = cache.narinfo(&path).url;
    let mut gzip = Command::new("gzip");
    let packed = gzip.arg("-c").arg(cache.nar(&path)).output().unwrap();
    let packed = packed.stdout;
    assert!(packed.len() > 4_000_000, "{} bytes", packed.len());
    let server = FaultServer::start(&cache.cache).with_validators();
    let cut = Fault::TruncatedGzip(packed.clone(), 1_000_000);
    server.fail_times(&nar, cut.clone(), 1);
    server.fail(&nar, Fault::Gzip(packed));
    install(&cache, &server).expect(0);
    assert_eq!(fault_count_for(&server, &nar, &cut), 1);
    let requests = server.requests_for(&nar);
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[1].fields.get("range"), None);
    assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
}

#[test]
fn permanently_stalled_nar_fails_alone_and_next_run_recovers() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (path, fault) = (cache.path("libc6"), Fault::Stalled(1000));
    let nar = cache.narinfo(&path).url;
    let server = FaultServer::start(&cache.cache);
    server.fail(&nar, fault.clone());
    let ran = install(&cache, &server).expect(4);
    ran.stderr_contains(&nar)
        .stderr_contains("nothing arrived for 1 seconds");
    assert_eq!(fault_count_for(&server, &nar, &fault), 5);
    let kept = cache.paths_without(&[&path]);
    assert!(!kept.is_empty());
    let left = cache.assert_valid_paths(&kept);
    assert!(
        !left.is_empty(),
        "no staged tree waited for the stalled path"
    );

    server.clear_faults();
    let since = server.requests().len();
    install(&cache, &server).expect(0);
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    let kept = kept.union(&left).map(base).collect();
    assert_fetched_only_missing(&cache.corpus, &server, since, &kept);
    assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
}

#[test]
fn truncated_response_head_is_retried_five_times() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    for len in [1, 20] {
        let server = FaultServer::start(&cache.cache);
        let fault = Fault::TruncatedHead(len);
        for file in requested_files(&cache) {
            server.fail_times(&file, fault.clone(), 2);
        }
        cache.install(&server.url()).expect(0);
        for file in requested_files(&cache) {
            assert_eq!(fault_count_for(&server, &file, &fault), 2, "{file}");
        }
        assert_store_contains_exactly(&cache.root, &cache.paths_without(&[]));
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
    let path = cache.path("libonig5");
    let narinfo = format!("{}.narinfo", path.hash_part());
    for file in [narinfo, cache.narinfo(&path).url] {
        let server = FaultServer::start(&cache.cache);
        server.fail(&file, Fault::TruncatedHead(20));
        cache.assert_install_fails_for(&server.url(), &[&path], 4, &["cannot fetch http", &file]);
        assert_eq!(
            fault_count_for(&server, &file, &Fault::TruncatedHead(20)),
            5,
            "{file}"
        );
    }
}

#[test]
fn oversized_or_corrupt_narinfo_fails_only_its_path() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let file = format!("{}.narinfo", path.hash_part());
    let good = fs::read(cache.cache.join(&file)).unwrap();
    let padded = |mut text: Vec<u8>, len: usize| {
        text.extend_from_slice(b"X: ");
        text.resize(len, b'x');
        text.push(b'\n');
        text
    };
    let mut noise = good.clone();
    noise[40..80].fill(0xff);
    let mut halved = good.clone();
    halved.truncate(good.len() / 2);
    for (garbage, says) in [
        (padded(good.clone(), 64 << 20), "longer than 1048576 bytes"),
        (vec![b'\n'; 8 << 20], "longer than 1048576 bytes"),
        (Vec::new(), "cannot use the narinfo"),
        (vec![0; 1000], "cannot use the narinfo"),
        (noise, "cannot use the narinfo"),
        (halved, "cannot use the narinfo"),
        (good.repeat(2), "cannot use the narinfo"),
    ] {
        fs::write(cache.cache.join(&file), &garbage).unwrap();
        let server = FaultServer::start(&cache.cache);
        cache.assert_install_fails_for(&server.url(), &[&path], 3, &["the narinfo", &file, says]);
        assert_eq!(server.requests_for(&file).len(), 1);
    }
    // A narinfo that is merely long is accepted.
    fs::write(cache.cache.join(&file), padded(good, 900 << 10)).unwrap();
    cache
        .install(&FaultServer::start(&cache.cache).url())
        .expect(0);
}

#[test]
fn oversized_or_invalid_nix_cache_info_disables_the_cache() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let info = cache.cache.join("nix-cache-info");
    for garbage in [vec![b'x'; 64 << 20], b"StoreDir: \xff\n".to_vec()] {
        fs::write(&info, garbage).unwrap();
        let server = FaultServer::start(&cache.cache);
        let ran = cache.install(&server.url()).expect(4);
        ran.stderr_contains("as a binary cache");
        assert_eq!(server.requests().len(), 1);
    }
}
