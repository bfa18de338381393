//! The order in which caches are queried, and how many queries one cache gets at once.

use std::fs;
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer, RecordedRequest};
use floe_testkit::{Corpus, Scratch, corpus, run, scratch};

use crate::faulty_cache::assert_verified;
use crate::support::floe;

/// A closure of many paths, and a directory for modified copies of its cache.
struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
}

fn fixture() -> Option<Fixture> {
    let corpus = corpus("curl")?;
    let scratch = scratch();
    Some(Fixture { corpus, scratch })
}

/// Serves the same paths with this additional nix-cache-info.
fn server_with_info(fixture: &Fixture, name: &str, info: &str) -> FaultServer {
    let copy = fixture
        .corpus
        .cache_copy("zstd", &fixture.scratch.join(name));
    fs::write(
        copy.join("nix-cache-info"),
        format!("StoreDir: /nix/store\n{info}\n"),
    )
    .unwrap();
    FaultServer::start(&copy)
}

/// Installs from the substituters that nix.conf names.
fn install(fixture: &Fixture, substituters: &str, name: &str) {
    let root = fixture.scratch.join(name);
    let mut command = floe([
        "install",
        "--trusted-public-keys",
        &fixture.corpus.key,
        "--root",
    ]);
    command.arg(&root).arg(&fixture.corpus.root);
    run(command.env("NIX_CONFIG", format!("substituters = {substituters}"))).expect(0);
    assert_verified(&root, fixture.corpus.paths.len());
}

#[test]
fn substituter_with_the_lowest_priority_number_is_queried() {
    let Some(fixture) = fixture() else { return };
    let later = server_with_info(&fixture, "later", "Priority: 50");
    let preferred = server_with_info(&fixture, "preferred", "Priority: 10");
    let paths = fixture.corpus.paths.len();
    let query_count = |server: &FaultServer| server.requests_for(".narinfo").len();
    install(
        &fixture,
        &format!("{} {}", later.url(), preferred.url()),
        "cache-priority",
    );
    assert_eq!((query_count(&later), query_count(&preferred)), (0, paths));
    // `?priority=` of the user overrides the priority of the cache.
    let here = format!("{} {}?priority=60", later.url(), preferred.url());
    install(&fixture, &here, "user-priority");
    assert_eq!(
        (query_count(&later), query_count(&preferred)),
        (paths, paths)
    );
    // Caches of equal priority are queried in the listed order.
    let alike = format!("{0} {1}?priority=50", later.url(), preferred.url());
    install(&fixture, &alike, "list-order");
    assert_eq!(
        (query_count(&later), query_count(&preferred)),
        (2 * paths, paths)
    );
}

#[test]
fn default_priority_is_zero_and_local_caches_are_not_preferred() {
    let Some(fixture) = fixture() else { return };
    let silent = server_with_info(&fixture, "silent", "");
    let ten = server_with_info(&fixture, "ten", "Priority: 10");
    let paths = fixture.corpus.paths.len();
    let query_count = |server: &FaultServer| server.requests_for(".narinfo").len();
    let here = format!("{} {}", ten.url(), silent.url());
    install(&fixture, &here, "default-priority");
    assert_eq!((query_count(&silent), query_count(&ten)), (paths, 0));

    let directory = fixture
        .corpus
        .cache_copy("zstd", &fixture.scratch.join("directory"));
    let info = "StoreDir: /nix/store\nPriority: 50\n";
    fs::write(directory.join("nix-cache-info"), info).unwrap();
    let directory = format!("file://{}", directory.display());
    let store = fixture.corpus.store();
    let store = format!("local?root={}", store.display());
    let mut asked = 0;
    // Paths in a local store are not signed.
    for (place, is_queried) in [
        (directory.clone(), true),
        (format!("{directory}?priority=5"), false),
        (format!("{store}&priority=11"), true),
        (store, false),
    ] {
        install(
            &fixture,
            &format!("{place} {}\nrequire-sigs = false", ten.url()),
            &format!("{is_queried} {asked}"),
        );
        let now = query_count(&ten);
        assert_eq!(now - asked, if is_queried { paths } else { 0 }, "{place}");
        asked = now;
    }
}

#[test]
fn cache_without_want_mass_query_gets_few_concurrent_queries() {
    let Some(fixture) = fixture() else { return };
    let excess = |info: &str| {
        let server = server_with_info(&fixture, info, info);
        server.fail(".narinfo", Fault::Delayed(DELAY));
        install(&fixture, &server.url(), &format!("store of {info}"));
        excess(&server.requests_for(".narinfo"), fixture.corpus.paths.len())
    };
    assert_eq!(excess("WantMassQuery: 0"), 0);
    // Otherwise the server could not see the difference.
    assert!(excess("WantMassQuery: 1") > 0);
}

/// Returns by how much the queries in flight exceed the first limit, which each reply raises by
/// one.
fn excess(requests: &[RecordedRequest], expected: usize) -> usize {
    assert_eq!(requests.len(), expected);
    let mut times: Vec<Instant> = requests.iter().map(|request| request.at).collect();
    times.sort_unstable();
    let excess = |(before, time): (usize, &Instant)| {
        let replies = times[..before]
            .iter()
            .filter(|sent| **sent + DELAY <= *time)
            .count();
        (before + 1 - replies).saturating_sub(LOW_CONCURRENCY + replies)
    };
    times.iter().enumerate().map(excess).max().unwrap()
}

const DELAY: Duration = Duration::from_millis(200);

#[test]
fn cache_that_the_user_names_gets_many_concurrent_queries() {
    let Some(fixture) = fixture() else { return };
    let server = server_with_info(&fixture, "named", "WantMassQuery: 0");
    server.fail(".narinfo", Fault::Delayed(DELAY));
    let excess = |parameter: &str, name: &str| {
        let before = server.requests_for(".narinfo").len();
        let root = fixture.scratch.join(name);
        let from = format!("{}{parameter}", server.url());
        let mut command = floe(["install", "--trusted-public-keys", &fixture.corpus.key]);
        command.args(["--from", &from, "--root"]).arg(&root);
        run(command.arg(&fixture.corpus.root)).expect(0);
        assert_verified(&root, fixture.corpus.paths.len());
        let requests = server.requests_for(".narinfo").split_off(before);
        excess(&requests, fixture.corpus.paths.len())
    };
    assert!(excess("", "named root") > 0);
    assert_eq!(excess("?want-mass-query=false", "few root"), 0);
}

/// The first limit of concurrent queries for a cache without `WantMassQuery`.
const LOW_CONCURRENCY: usize = 4;
