//! `http-connections`: the limit of concurrent requests per host, for narinfos and NARs together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{Corpus, Scratch, copy_tree, corpus, nginx, run, scratch};

use crate::faulty_cache::assert_verified;
use crate::support::floe;
use floe_testkit::create_certificates;
use floe_testkit::find_tool;

/// A closure of many paths in a cache with `WantMassQuery: 1`.
struct Fixture {
    corpus: Corpus,
    cache: PathBuf,
    scratch: Scratch,
}

fn fixture() -> Option<Fixture> {
    let (corpus, scratch) = (corpus("curl")?, scratch());
    let cache = corpus.cache_copy("zstd", scratch.path());
    let info = "StoreDir: /nix/store\nWantMassQuery: 1\n";
    fs::write(cache.join("nix-cache-info"), info).unwrap();
    Some(Fixture {
        corpus,
        cache,
        scratch,
    })
}

impl Fixture {
    /// Returns a command that installs everything with these `http-connections` and jobs.
    fn install(
        &self,
        server: &FaultServer,
        (connections, jobs): (usize, usize),
        root: &Path,
    ) -> Command {
        self.install_from(&server.url(), (connections, jobs), root)
    }

    fn install_from(&self, url: &str, (connections, jobs): (usize, usize), root: &Path) -> Command {
        let (connections, jobs) = (connections.to_string(), jobs.to_string());
        let mut command = floe(["install", "--json", "--from", url, "--root"]);
        command.arg(root).arg(&self.corpus.root);
        command.args(["--trusted-public-keys", &self.corpus.key, "--jobs", &jobs]);
        command.args(["--option", "http-connections", &connections]);
        command
    }
}

#[test]
fn concurrent_requests_reach_but_never_exceed_the_limit() {
    let Some(fixture) = fixture() else { return };
    for (connections, jobs, slow) in [(2, 1, 30), (3, 4, 30), (12, 1, 500)] {
        let server = FaultServer::start(&fixture.cache);
        // The delay makes floe send all requests that it may before the first response.
        server.fail("", Fault::Delayed(Duration::from_millis(slow)));
        let root = fixture.scratch.join(&format!("root-{connections}"));
        run(&mut fixture.install(&server, (connections, jobs), &root)).expect(0);
        assert_eq!(server.max_in_flight(), connections, "{jobs} jobs");
        assert_verified(&root, fixture.corpus.paths.len());
    }
}

#[test]
fn remembered_http2_is_ignored_if_http2_is_disabled() {
    let Some(fixture) = fixture() else { return };
    let (home, root) = (fixture.scratch.join("home"), fixture.scratch.join("root"));
    let server = FaultServer::start(&fixture.cache);
    let mut command = fixture.install(&server, (3, 1), &fixture.scratch.join("first"));
    run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    mark_as_http2(&home);

    let asked = server.requests().len();
    server.fail("", Fault::Delayed(Duration::from_millis(30)));
    let mut command = fixture.install(&server, (3, 1), &root);
    command.args(["--option", "http2", "false"]);
    run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    assert_eq!(server.max_in_flight(), 3);
    // nix-cache-info was not requested again.
    assert_eq!(
        server.requests().len() - asked,
        2 * fixture.corpus.paths.len()
    );
}

#[test]
fn remembered_http2_is_dropped_after_an_http1_response() {
    let Some(fixture) = fixture() else { return };
    let home = fixture.scratch.join("home");
    let server = FaultServer::start(&fixture.cache);
    let install = |name: &str| {
        let mut command = fixture.install(&server, (1, 1), &fixture.scratch.join(name));
        run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    };
    install("first");
    mark_as_http2(&home);
    server.fail("", Fault::Delayed(Duration::from_millis(10)));
    // The first query is for the root path, alone, so that floe learns the protocol from it.
    install("second");
    assert_eq!(server.max_in_flight(), 1);
    assert_eq!(server.requests_for("nix-cache-info").len(), 1);
}

/// The first request is then for a NAR, over a connection that is made for HTTP/2.
#[test]
fn remembered_http2_of_an_http1_host_costs_one_attempt() {
    let Some(fixture) = fixture() else { return };
    let home = fixture.scratch.join("home");
    let server = FaultServer::start(&fixture.cache);
    let install = |name: &str| {
        let root = fixture.scratch.join(name);
        let mut command = fixture.install(&server, (8, 2), &root);
        run(command.env("XDG_CACHE_HOME", &home)).expect(0);
        assert_verified(&root, fixture.corpus.paths.len());
    };
    install("first");
    let asked = server.requests_for(".narinfo").len();
    remember_http2(&home);
    install("second");
    assert_eq!(server.requests_for(".narinfo").len(), asked);
}

/// Changes the disk cache as if the server spoke HTTP/2, and removes the narinfos.
fn mark_as_http2(home: &Path) {
    let narinfos = "delete from objects where name != 'nix-cache-info'";
    disk_cache(home).execute(narinfos, []).unwrap();
    remember_http2(home);
}

fn remember_http2(home: &Path) {
    let changed = "update objects set http2 = 1 where name = 'nix-cache-info'";
    assert_eq!(disk_cache(home).execute(changed, []).unwrap(), 1);
}

fn disk_cache(home: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(home.join("floe/narinfos.sqlite")).unwrap()
}

#[test]
fn http2_of_redirect_target_does_not_lift_the_limit() {
    let Some(fixture) = fixture() else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let certificates = create_certificates(&openssl, fixture.scratch.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl http2; {}", certificates.server);
    let Some(elsewhere) = nginx(&fixture.cache, &extra) else {
        return;
    };
    let server = FaultServer::start(&fixture.cache);
    let info = "/nix-cache-info";
    let to = format!("https://127.0.0.1:{}{info}", elsewhere.port(1));
    server.fail(info, Fault::Redirect(to));
    server.fail("", Fault::Delayed(Duration::from_millis(30)));
    let root = fixture.scratch.join("root");
    let mut command = fixture.install(&server, (3, 1), &root);
    command.env_remove("NIX_SSL_CERT_FILE");
    run(command.env("SSL_CERT_FILE", &certificates.authority)).expect(0);
    assert!(elsewhere.log().contains("HTTP/2.0"), "{}", elsewhere.log());
    assert_eq!(server.max_in_flight(), 3);
}

/// Two caches that each have a part of the narinfos redirect all NARs to a third server.
#[test]
fn redirects_of_all_caches_share_the_limit_of_their_host() {
    let Some(fixture) = fixture() else { return };
    let half = fixture.scratch.join("half");
    copy_tree(&fixture.cache, &half);
    for path in fixture.corpus.paths.iter().step_by(2) {
        let name = format!("{}.narinfo", &path["/nix/store/".len()..][..32]);
        fs::remove_file(half.join(name)).unwrap();
    }
    let elsewhere = FaultServer::start(&fixture.cache);
    elsewhere.fail("", Fault::Delayed(Duration::from_millis(30)));
    let servers = [&half, &fixture.cache].map(|directory| FaultServer::start(directory));
    for entry in fs::read_dir(fixture.cache.join("nar")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let to = format!("{}/nar/{name}", elsewhere.url());
        for server in &servers {
            server.fail(&name, Fault::Redirect(to.clone()));
        }
    }
    let root = fixture.scratch.join("root");
    let mut command = fixture.install(&servers[0], (3, 4), &root);
    run(command.args(["--from", &servers[1].url()])).expect(0);
    assert!(servers.iter().all(|server| server.fault_count() > 5));
    let paths = fixture.corpus.paths.len();
    assert_eq!(elsewhere.requests().len(), paths);
    assert_eq!(elsewhere.max_in_flight(), 3);
    assert_verified(&root, paths);
}

/// The requests to the cache itself need no connections of their own.
#[test]
fn redirects_of_http2_cache_keep_the_limit_of_their_host() {
    let Some(fixture) = fixture() else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let certificates = create_certificates(&openssl, fixture.scratch.path());
    let elsewhere = FaultServer::start(&fixture.cache);
    elsewhere.fail("", Fault::Delayed(Duration::from_millis(30)));
    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl http2; {} location /nar/ {{ return 302 {}$request_uri; }}",
        certificates.server,
        elsewhere.url()
    );
    let Some(cache) = nginx(&fixture.cache, &extra) else {
        return;
    };
    for (connections, jobs) in [(1, 2), (3, 4)] {
        let root = fixture.scratch.join(&format!("root-{connections}"));
        let url = format!("https://127.0.0.1:{}", cache.port(1));
        let mut command = fixture.install_from(&url, (connections, jobs), &root);
        command.env_remove("NIX_SSL_CERT_FILE");
        run(command.env("SSL_CERT_FILE", &certificates.authority)).expect(0);
        assert_eq!(elsewhere.max_in_flight(), connections, "{jobs} jobs");
        assert_verified(&root, fixture.corpus.paths.len());
    }
    assert!(cache.log().contains("HTTP/2.0"), "{}", cache.log());
}

/// Removes `FileSize` from the narinfos with a matching number. floe treats a NAR of unknown size
/// as large.
fn without_file_sizes(fixture: &Fixture, matches: impl Fn(usize) -> bool) {
    for (number, path) in fixture.corpus.paths.iter().enumerate() {
        let name = format!("{}.narinfo", &path["/nix/store/".len()..][..32]);
        let text = fs::read_to_string(fixture.corpus.cache("zstd").join(&name)).unwrap();
        let lines = text.split_inclusive('\n');
        let kept = lines.filter(|line| !matches(number) || !line.starts_with("FileSize"));
        fs::write(fixture.cache.join(&name), kept.collect::<String>()).unwrap();
    }
}

/// Prefetched bodies that wait for a worker must not take all connections: a worker may wait for
/// one, too.
#[test]
fn large_nars_over_few_connections_do_not_deadlock() {
    let Some(fixture) = fixture() else { return };
    for modulus in [1, 2] {
        without_file_sizes(&fixture, |number| number.is_multiple_of(modulus));
        for (connections, jobs) in [(1, 1), (1, 4), (2, 1), (2, 4)] {
            let server = FaultServer::start(&fixture.cache);
            // Retried requests compete for connections that other requests hold by then.
            server.fail_times(".nar.zst", Fault::Truncated(1000), 3);
            let root = fixture.scratch.join("root");
            let mut command = fixture.install(&server, (connections, jobs), &root);
            let command = command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let deadline = Instant::now() + TIMEOUT;
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if Instant::now() > deadline {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!(
                        "{connections} connections and {jobs} jobs: {:?}",
                        server.requests()
                    );
                }
                // The poll also ends a child that hangs.
                thread::sleep(POLL);
            };
            assert!(status.success(), "{connections} connections, {jobs} jobs");
            assert_eq!(server.fault_count(), 3);
            assert!(server.max_in_flight() <= connections);
            assert_verified(&root, fixture.corpus.paths.len());
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }
}

/// Many times the duration of such an install.
const TIMEOUT: Duration = Duration::from_secs(90);

/// How often to check whether the install has ended.
const POLL: Duration = Duration::from_millis(10);
