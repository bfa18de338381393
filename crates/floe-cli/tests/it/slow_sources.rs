//! Slow and dead sources: they delay a copy only for a moment, as long as another connection or
//! another source works.
//!
//! The timeouts of a request are minutes here, so a copy that waits for one exceeds [`SOON`].

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, run};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// Far above the time of any install here, and far below the timeout of a request, 300 s.
const SOON: Duration = Duration::from_secs(60);

fn install(cache: &FaultyCache, from: &[&str]) -> Command {
    let mut command = floe(["install", "--trusted-public-keys", &cache.corpus.key]);
    for url in from {
        command.args(["--from", url]);
    }
    command.arg("--root").arg(&cache.root);
    command.arg(&cache.corpus.root);
    command
}

/// Runs an install that must succeed soon.
fn install_soon(cache: &FaultyCache, from: &[&str]) -> CommandOutput {
    let began = Instant::now();
    let ran = run(&mut install(cache, from)).expect(0);
    let elapsed = began.elapsed();
    assert!(elapsed < SOON, "{elapsed:?}\n{}", ran.stderr);
    assert_verified(&cache.root, cache.corpus.paths.len());
    ran
}

fn servers<const COUNT: usize>(cache: &FaultyCache) -> [FaultServer; COUNT] {
    std::array::from_fn(|_| FaultServer::start(&cache.cache))
}

#[test]
fn body_of_dead_connection_continues_over_another() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache).with_validators();
    let nar = cache.nar(&cache.path("libc6"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    const SENT: usize = 100_000;
    server.fail_times(nar, Fault::Stalled(SENT), 1);
    let ran = install_soon(&cache, &[&server.url()]);
    let requests = server.requests_for(nar);
    let [first, second] = &requests[..] else {
        panic!("{requests:?}");
    };
    assert_eq!(first.fault, Some(Fault::Stalled(SENT)));
    assert_ne!(first.connection, second.connection);
    assert_eq!(second.fields["range"], format!("bytes={SENT}-"));
    // The user cannot do anything about it, and nothing was lost.
    assert!(!ran.stderr.contains("retrying"), "{}", ran.stderr);
}

#[test]
fn small_objects_of_dead_connections_are_requested_again() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let nar = cache.nar(&cache.path("libonig5"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    for name in ["nix-cache-info", &narinfo, nar] {
        server.fail_times(name, Fault::Stalled(10), 1);
    }
    install_soon(&cache, &[&server.url()]);
    for name in ["nix-cache-info", &narinfo, nar] {
        assert_eq!(server.requests_for(name).len(), 2, "{name}");
    }
}

#[test]
fn bodies_that_stall_come_from_another_source() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let [slow, good] = servers(&cache);
    slow.fail(".nar.zst", Fault::Stalled(100));
    let ran = install_soon(&cache, &[&slow.url(), &good.url()]);
    assert!(slow.fault_count() > 0);
    assert_eq!(
        good.requests_for(".nar.zst").len(),
        cache.corpus.paths.len()
    );
    let warnings = ran.stderr.matches("and using the other sources").count();
    assert_eq!(warnings, 1, "{}", ran.stderr);
}

/// Another source would send it from its beginning.
#[test]
fn body_that_makes_progress_stays_with_its_source() {
    let Some(cache) = faulty_cache("none") else {
        return;
    };
    let nar = cache.nar(&cache.path("libc6"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    let [first, second] = servers(&cache).map(FaultServer::with_validators);
    first.fail_times(nar, Fault::Truncated(1_500_000), 3);
    install_soon(&cache, &[&first.url(), &second.url()]);
    let requests = first.requests_for(nar);
    let ranges: Vec<Option<&str>> = requests
        .iter()
        .map(|request| request.fields.get("range").map(String::as_str))
        .collect();
    let continued = ["bytes=1500000-", "bytes=3000000-", "bytes=4500000-"];
    assert_eq!(ranges[0], None);
    assert_eq!(ranges[1..], continued.map(Some));
    assert_eq!(second.requests_for(nar).len(), 0);
}

#[test]
fn retry_after_does_not_delay_paths_of_another_source() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let [busy, good] = servers(&cache);
    busy.fail(".nar.zst", Fault::RetryAfter(503, "119".into()));
    install_soon(&cache, &[&busy.url(), &good.url()]);
    assert!(busy.fault_count() > 0);
}

#[test]
fn hanging_sources_before_the_good_one_cost_little() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let good = FaultServer::start(&cache.cache);
    // The system accepts the connections, and no process answers.
    let hanging: Vec<TcpListener> = (0..49)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let urls = hanging.iter().map(|listener| {
        let address = listener.local_addr().unwrap();
        format!("http://{address}")
    });
    let mut urls: Vec<String> = urls.collect();
    urls.push(good.url());
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    install_soon(&cache, &urls);
    for listener in &hanging {
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_ok(), "floe did not try this source");
    }
}

#[test]
fn sources_that_hang_after_their_first_reply_cost_little() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let good = FaultServer::start(&cache.cache);
    let hanging: Vec<FaultServer> = (0..20)
        .map(|_| {
            let server = FaultServer::start(&cache.cache);
            server.fail(".narinfo", Fault::Stalled(0));
            server
        })
        .collect();
    let mut urls: Vec<String> = hanging.iter().map(FaultServer::url).collect();
    urls.push(good.url());
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    install_soon(&cache, &urls);
    assert!(hanging.iter().all(|server| server.fault_count() > 0));
}
