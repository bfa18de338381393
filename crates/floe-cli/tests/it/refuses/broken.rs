//! Interrupted transfers that resume, and servers that demand a wait or authentication.

use std::fs;
use std::time::Duration;

use super::transfers::{assert_happened, nar_name};
use crate::faulty::{Faulty, assert_verified, faulty};
use crate::server::{Fault, Server};
use crate::support::{floe, run};

fn size(cache: &Faulty, name: &str) -> usize {
    let file = cache.nar(&cache.path(name));
    usize::try_from(fs::metadata(file).unwrap().len()).unwrap()
}

#[test]
fn a_large_body_that_breaks_off_is_gone_on_with_where_it_stopped() {
    let Some(cache) = faulty("none") else { return };
    let (nar, len) = (nar_name(&cache, "libc6"), size(&cache, "libc6"));
    let server = Server::start(&cache.cache).with_validators();
    let cut = Fault::Cut(1_500_000);
    // More interruptions than attempts. Each transfer makes progress, so none counts as a failed
    // attempt.
    server.fail_times(&nar, cut.clone(), 6);
    let ran = cache.install(&server.url()).expect(0);
    assert!(
        len > 6 * 1_500_000,
        "{len} bytes are too few for six interruptions"
    );
    assert_happened(&server, &nar, &cut, 6);
    let hits = server.hits_on(&nar);
    let ranges: Vec<_> = hits.iter().map(|hit| hit.fields.get("range")).collect();
    assert_eq!(hits.len(), 7);
    assert_eq!(ranges[0], None);
    let first = |range: Option<&String>| -> usize {
        let range = range.unwrap().strip_prefix("bytes=").unwrap();
        range.strip_suffix('-').unwrap().parse().unwrap()
    };
    for (number, range) in ranges.iter().enumerate().skip(1) {
        assert_eq!(first(*range), number * 1_500_000, "{ranges:?}");
        assert_eq!(hits[number].status, 206);
    }
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn a_rest_that_comes_in_pieces_is_fetched_to_its_end() {
    let Some(cache) = faulty("none") else { return };
    let (nar, len) = (nar_name(&cache, "libc6"), size(&cache, "libc6"));
    let server = Server::start(&cache.cache).with_validators();
    let cut = Fault::Cut(1_500_000);
    server.fail_times(&nar, cut.clone(), 1);
    // More pieces than attempts. The transfer continues as long as each piece makes progress.
    let pieces = [vec![1_200_000; 6], vec![1000]].concat();
    for piece in &pieces {
        server.fail_times(&nar, Fault::Piece(*piece), 1);
    }
    assert!(len > 10_000_000, "{len} bytes are too few for all pieces");
    let ran = cache.install(&server.url()).expect(0);
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
    let hits = server.hits_on(&nar);
    assert_eq!(hits.len(), 1 + pieces.len() + 1);
    let mut first = 1_500_000;
    for (hit, piece) in hits[1..].iter().zip(pieces) {
        assert_eq!(hit.fields["range"], format!("bytes={first}-"));
        assert_eq!(hit.fault, Some(Fault::Piece(piece)));
        first += piece;
    }
    assert_verified(&cache.root, cache.corpus.paths.len());
    floe_store::tree::remove_tree(&cache.root).unwrap();

    // If every piece is too small to count as progress, the transfer fails.
    let server = Server::start(&cache.cache).with_validators();
    server.fail_times(&nar, cut, 1);
    server.fail(&nar, Fault::Piece(1000));
    let path = cache.path("libc6");
    cache.refuses(&server.url(), &[&path], 4, &["and no more"]);
    assert_eq!(server.hits_on(&nar).len(), 5);
}

#[test]
fn a_body_that_has_changed_meanwhile_is_fetched_from_its_beginning() {
    let Some(cache) = faulty("none") else { return };
    let nar = nar_name(&cache, "libc6");
    let server = Server::start(&cache.cache).with_validators();
    server.fail_times(&nar, Fault::Cut(1_500_000), 1);
    server.fail_times(&nar, Fault::Changed, 1);
    cache.install(&server.url()).expect(0);
    assert_happened(&server, &nar, &Fault::Cut(1_500_000), 1);
    assert_happened(&server, &nar, &Fault::Changed, 1);
    let hits = server.hits_on(&nar);
    let seen: Vec<_> = hits
        .iter()
        .map(|hit| (hit.status, hit.fields.contains_key("range")))
        .collect();
    assert_eq!(seen, [(200, false), (200, true), (200, false)]);
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn a_body_that_never_gets_on_is_given_up_after_as_many_attempts_as_any_other() {
    let Some(cache) = faulty("none") else { return };
    let (path, nar) = (cache.path("libc6"), nar_name(&cache, "libc6"));
    let server = Server::start(&cache.cache).with_validators();
    server.fail(&nar, Fault::Cut(1000));
    cache.refuses(&server.url(), &[&path], 4, &["fetching http", &nar]);
    assert_happened(&server, &nar, &Fault::Cut(1000), 5);
}

#[test]
fn a_server_that_names_a_time_is_left_alone_until_then() {
    let Some(cache) = faulty("zstd") else { return };
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let nar = nar_name(&cache, "libc6");
    let server = Server::start(&cache.cache);
    let later = Fault::Later(429, "2".into());
    server.fail_times(&narinfo, later.clone(), 1);
    server.fail_times(&nar, later.clone(), 1);
    cache.install(&server.url()).expect(0);
    for file in [&narinfo, &nar] {
        assert_happened(&server, file, &later, 1);
        let hits = server.hits_on(file);
        let apart = hits[1].at - hits[0].at;
        assert!(apart >= Duration::from_secs(2), "{file}: {apart:?}");
    }
}

#[test]
fn a_server_that_names_a_time_is_left_alone_by_who_asks_ahead_too() {
    let Some(cache) = faulty("zstd") else { return };
    let server = Server::start(&cache.cache);
    // The only worker reaches the smallest NAR long after its prefetch.
    let (largest, small) = (nar_name(&cache, "libc6"), nar_name(&cache, "gcc-12-base"));
    let (at_first, later) = (Fault::Later(503, "3".into()), Fault::Later(429, "6".into()));
    server.fail_times(&largest, at_first.clone(), 1);
    server.fail_times(&small, later.clone(), 1);
    let mut command = floe(["install", "--jobs", "1", "--from", &server.url(), "--root"]);
    command.arg(&cache.root).arg("--trusted-public-keys");
    run(command.arg(&cache.corpus.key).arg(&cache.corpus.root)).expect(0);
    assert_happened(&server, &largest, &at_first, 1);
    assert_happened(&server, &small, &later, 1);
    let hits = server.hits_on(&small);
    let apart = hits[1].at - hits[0].at;
    assert!(apart >= Duration::from_secs(6), "{apart:?}");
}

#[test]
fn a_server_that_wants_to_be_left_alone_for_hours_has_failed() {
    let Some(cache) = faulty("zstd") else { return };
    let (path, nar) = (cache.path("libc6"), nar_name(&cache, "libc6"));
    let server = Server::start(&cache.cache);
    let later = Fault::Later(503, "7200".into());
    server.fail(&nar, later.clone());
    cache.refuses(&server.url(), &[&path], 4, &["503", "in 7200 seconds"]);
    assert_happened(&server, &nar, &later, 1);
}

#[test]
fn a_connection_that_is_reset_is_tried_again() {
    let Some(cache) = faulty("zstd") else { return };
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let files = [narinfo, nar_name(&cache, "libc6"), "nix-cache-info".into()];
    let server = Server::start(&cache.cache);
    for file in &files {
        server.fail_times(file, Fault::Reset, 3);
    }
    cache.install(&server.url()).expect(0);
    for file in &files {
        // The HTTP client itself repeats a request if a reused connection closes without a
        // response. These repetitions count among the three faults.
        assert_happened(&server, file, &Fault::Reset, 3);
    }
    assert_verified(&cache.root, cache.corpus.paths.len());
}
