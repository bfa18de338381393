//! Interrupted transfers that resume, and servers that demand a wait or authentication.

use std::fs;
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::run;

use super::transfers::{assert_fault_count, nar_file_name};
use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

fn size(cache: &FaultyCache, name: &str) -> usize {
    let file = cache.nar(&cache.path(name));
    usize::try_from(fs::metadata(file).unwrap().len()).unwrap()
}

#[test]
fn truncated_large_nar_resumes_where_it_stopped() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let (nar, len) = (nar_file_name(&cache, "libc6"), size(&cache, "libc6"));
    let server = FaultServer::start(&cache.cache).with_validators();
    let cut = Fault::Truncated(1_500_000);
    // More interruptions than attempts. Each transfer makes progress, so none counts as a failed
    // attempt.
    server.fail_times(&nar, cut.clone(), 6);
    let ran = cache.install(&server.url()).expect(0);
    assert!(
        len > 6 * 1_500_000,
        "{len} bytes are too few for six interruptions"
    );
    assert_fault_count(&server, &nar, &cut, 6);
    let requests = server.requests_for(&nar);
    let ranges: Vec<_> = requests
        .iter()
        .map(|request| request.fields.get("range"))
        .collect();
    assert_eq!(requests.len(), 7);
    assert_eq!(ranges[0], None);
    let first = |range: Option<&String>| -> usize {
        let range = range.unwrap().strip_prefix("bytes=").unwrap();
        range.strip_suffix('-').unwrap().parse().unwrap()
    };
    for (number, range) in ranges.iter().enumerate().skip(1) {
        assert_eq!(first(*range), number * 1_500_000, "{ranges:?}");
        assert_eq!(requests[number].status, 206);
    }
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

/// A server or proxy that sends the body before it knows its length.
#[test]
fn truncated_chunked_nar_resumes_where_it_stopped() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let nar = nar_file_name(&cache, "libc6");
    let server = FaultServer::start(&cache.cache).with_validators();
    let cut = Fault::TruncatedChunked(1_500_000);
    server.fail_times(&nar, cut.clone(), 1);
    let ran = cache.install(&server.url()).expect(0);
    assert_fault_count(&server, &nar, &cut, 1);
    let requests = server.requests_for(&nar);
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.status, request.fields.get("range")))
        .collect();
    let rest = "bytes=1500000-".to_owned();
    assert_eq!(seen, [(200, None), (206, Some(&rest))]);
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

/// Such a rest may be encoded, so it cannot be appended.
#[test]
fn chunked_rest_of_chunked_nar_is_not_appended() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let nar = nar_file_name(&cache, "libc6");
    let server = FaultServer::start(&cache.cache).with_validators();
    let cut = Fault::TruncatedChunked(1_500_000);
    server.fail_times(&nar, cut.clone(), 2);
    cache.install(&server.url()).expect(0);
    assert_fault_count(&server, &nar, &cut, 2);
    let requests = server.requests_for(&nar);
    let statuses: Vec<_> = requests.iter().map(|request| request.status).collect();
    assert_eq!(statuses, [200, 206, 200]);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn nar_delivered_in_partial_ranges_completes() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let (nar, len) = (nar_file_name(&cache, "libc6"), size(&cache, "libc6"));
    let server = FaultServer::start(&cache.cache).with_validators();
    let cut = Fault::Truncated(1_500_000);
    server.fail_times(&nar, cut.clone(), 1);
    // More pieces than attempts. The transfer continues as long as each piece makes progress.
    let pieces = [vec![1_200_000; 6], vec![1000]].concat();
    for piece in &pieces {
        server.fail_times(&nar, Fault::PartialRange(*piece), 1);
    }
    assert!(len > 10_000_000, "{len} bytes are too few for all pieces");
    let ran = cache.install(&server.url()).expect(0);
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
    let requests = server.requests_for(&nar);
    assert_eq!(requests.len(), 1 + pieces.len() + 1);
    let mut first = 1_500_000;
    for (request, piece) in requests[1..].iter().zip(pieces) {
        assert_eq!(request.fields["range"], format!("bytes={first}-"));
        assert_eq!(request.fault, Some(Fault::PartialRange(piece)));
        first += piece;
    }
    assert_verified(&cache.root, cache.corpus.paths.len());
    floe_store::tree::remove_tree(&cache.root).unwrap();

    // If every piece is too small to count as progress, the transfer fails.
    let server = FaultServer::start(&cache.cache).with_validators();
    server.fail_times(&nar, cut, 1);
    server.fail(&nar, Fault::PartialRange(1000));
    let path = cache.path("libc6");
    cache.assert_install_fails_for(&server.url(), &[&path], 4, &["and no more"]);
    assert_eq!(server.requests_for(&nar).len(), 5);
}

#[test]
fn nar_changed_during_transfer_restarts_from_the_beginning() {
    let Some((cache, server, nar)) = server_with_cut(&Fault::ChangedEtag) else {
        return;
    };
    cache.install(&server.url()).expect(0);
    assert_fault_count(&server, &nar, &Fault::Truncated(1_500_000), 1);
    assert_fault_count(&server, &nar, &Fault::ChangedEtag, 1);
    assert_restarted(&server, &nar);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn whole_body_instead_of_a_range_is_continued() {
    let Some((cache, server, nar)) = server_with_cut(&Fault::IgnoredRange) else {
        return;
    };
    cache.install(&server.url()).expect(0);
    assert_fault_count(&server, &nar, &Fault::IgnoredRange, 1);
    // The whole body was not requested a third time.
    let requests = server.requests_for(&nar);
    let statuses: Vec<u16> = requests.iter().map(|request| request.status).collect();
    assert_eq!(statuses, [200, 200]);
    assert!(requests[1].fields.contains_key("range"));
    assert_verified(&cache.root, cache.corpus.paths.len());
}

/// The validator claims that the file is the same. The hash decides.
#[test]
fn range_with_other_bytes_is_never_valid() {
    let Some((cache, server, nar)) = server_with_cut(&Fault::OtherRange) else {
        return;
    };
    let ran = cache.install(&server.url()).expect(3);
    assert!(ran.stderr.contains("libc6"), "{}", ran.stderr);
    assert_fault_count(&server, &nar, &Fault::OtherRange, 1);
    assert_eq!(server.requests_for(&nar)[1].status, 206);
    let complete = cache.complete_paths();
    assert!(
        !complete.iter().any(|path| path.contains("libc6")),
        "{complete:?}"
    );
    cache.install(&server.url()).expect(0);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

/// Asserts that the rest was requested in vain, and then the whole body.
fn assert_restarted(server: &FaultServer, nar: &str) {
    let requests = server.requests_for(nar);
    let seen: Vec<_> = requests
        .iter()
        .map(|request| (request.status, request.fields.contains_key("range")))
        .collect();
    assert_eq!(seen, [(200, false), (200, true), (200, false)]);
}

/// Starts a server that cuts one large NAR once, and then injects a fault.
fn server_with_cut(fault: &Fault) -> Option<(FaultyCache, FaultServer, String)> {
    let cache = faulty_cache("none")?;
    let nar = nar_file_name(&cache, "libc6");
    let server = FaultServer::start(&cache.cache).with_validators();
    server.fail_times(&nar, Fault::Truncated(1_500_000), 1);
    server.fail_times(&nar, fault.clone(), 1);
    Some((cache, server, nar))
}

#[test]
fn transfer_without_progress_fails_after_five_attempts() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let (path, nar) = (cache.path("libc6"), nar_file_name(&cache, "libc6"));
    let server = FaultServer::start(&cache.cache).with_validators();
    server.fail(&nar, Fault::Truncated(1000));
    cache.assert_install_fails_for(&server.url(), &[&path], 4, &["cannot fetch http", &nar]);
    assert_fault_count(&server, &nar, &Fault::Truncated(1000), 5);
}

#[test]
fn retry_after_is_honoured() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let nar = nar_file_name(&cache, "libc6");
    let server = FaultServer::start(&cache.cache);
    let later = Fault::RetryAfter(429, "2".into());
    server.fail_times(&narinfo, later.clone(), 1);
    server.fail_times(&nar, later.clone(), 1);
    cache.install(&server.url()).expect(0);
    for file in [&narinfo, &nar] {
        assert_fault_count(&server, file, &later, 1);
        let requests = server.requests_for(file);
        let apart = requests[1].at - requests[0].at;
        assert!(apart >= Duration::from_secs(2), "{file}: {apart:?}");
    }
}

#[test]
fn retry_after_of_prefetch_is_honoured() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    // The only worker reaches the smallest NAR long after its prefetch.
    let (largest, small) = (
        nar_file_name(&cache, "libc6"),
        nar_file_name(&cache, "gcc-12-base"),
    );
    let (at_first, later) = (
        Fault::RetryAfter(503, "3".into()),
        Fault::RetryAfter(429, "6".into()),
    );
    server.fail_times(&largest, at_first.clone(), 1);
    server.fail_times(&small, later.clone(), 1);
    let mut command = floe(["install", "--jobs", "1", "--from", &server.url(), "--root"]);
    command.arg(&cache.root).arg("--trusted-public-keys");
    run(command.arg(&cache.corpus.key).arg(&cache.corpus.root)).expect(0);
    assert_fault_count(&server, &largest, &at_first, 1);
    assert_fault_count(&server, &small, &later, 1);
    let requests = server.requests_for(&small);
    let apart = requests[1].at - requests[0].at;
    assert!(apart >= Duration::from_secs(6), "{apart:?}");
}

#[test]
fn retry_after_of_two_hours_is_an_error() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (path, nar) = (cache.path("libc6"), nar_file_name(&cache, "libc6"));
    let server = FaultServer::start(&cache.cache);
    let later = Fault::RetryAfter(503, "7200".into());
    server.fail(&nar, later.clone());
    cache.assert_install_fails_for(
        &server.url(),
        &[&path],
        4,
        &["503", "Retry-After of 7200 seconds"],
    );
    assert_fault_count(&server, &nar, &later, 1);
}

#[test]
fn reset_connection_is_retried() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let files = [
        narinfo,
        nar_file_name(&cache, "libc6"),
        "nix-cache-info".into(),
    ];
    let server = FaultServer::start(&cache.cache);
    for file in &files {
        server.fail_times(file, Fault::Reset, 3);
    }
    cache.install(&server.url()).expect(0);
    for file in &files {
        // The HTTP client itself repeats a request if a reused connection closes without a
        // response. These repetitions count among the three faults.
        assert_fault_count(&server, file, &Fault::Reset, 3);
    }
    assert_verified(&cache.root, cache.corpus.paths.len());
}
