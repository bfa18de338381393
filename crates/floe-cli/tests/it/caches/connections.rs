//! `http-connections`: the limit of concurrent requests per cache, for narinfos and NARs together.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::environments::tls::certify;
use crate::environments::tool;
use crate::faulty::assert_verified;
use crate::server::{Fault, Server};
use crate::support::{Corpus, Scratch, corpus, floe, nginx, run, scratch};

/// A closure of many paths in a cache with `WantMassQuery: 1`.
struct World {
    corpus: Corpus,
    cache: PathBuf,
    scratch: Scratch,
}

fn world() -> Option<World> {
    let (corpus, scratch) = (corpus("curl")?, scratch());
    let cache = corpus.cache_copy("zstd", scratch.path());
    let info = "StoreDir: /nix/store\nWantMassQuery: 1\n";
    fs::write(cache.join("nix-cache-info"), info).unwrap();
    Some(World {
        corpus,
        cache,
        scratch,
    })
}

impl World {
    /// Returns a command that installs everything with these `http-connections` and jobs.
    fn install(
        &self,
        server: &Server,
        (connections, jobs): (usize, usize),
        root: &Path,
    ) -> Command {
        let (connections, jobs) = (connections.to_string(), jobs.to_string());
        let mut command = floe(["install", "--json", "--from", &server.url(), "--root"]);
        command.arg(root).arg(&self.corpus.root);
        command.args(["--trusted-public-keys", &self.corpus.key, "--jobs", &jobs]);
        command.args(["--option", "http-connections", &connections]);
        command
    }
}

#[test]
fn no_more_requests_are_under_way_than_the_user_has_said() {
    let Some(world) = world() else { return };
    for (connections, jobs, slow) in [(2, 1, 30), (3, 4, 30), (25, 1, 500)] {
        let server = Server::start(&world.cache);
        // The delay makes floe send all requests that it may before the first response.
        server.fail("", Fault::Slow(Duration::from_millis(slow)));
        let root = world.scratch.join(&format!("root-{connections}"));
        run(&mut world.install(&server, (connections, jobs), &root)).expect(0);
        assert_eq!(server.most_at_once(), connections, "{jobs} jobs");
        assert_verified(&root, world.corpus.paths.len());
    }
}

#[test]
fn a_cache_that_spoke_http2_once_is_asked_no_more_where_it_may_not() {
    let Some(world) = world() else { return };
    let (home, root) = (world.scratch.join("home"), world.scratch.join("root"));
    let server = Server::start(&world.cache);
    let mut command = world.install(&server, (3, 1), &world.scratch.join("first"));
    run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    remember_http2(&home);

    let asked = server.hits().len();
    server.fail("", Fault::Slow(Duration::from_millis(30)));
    let mut command = world.install(&server, (3, 1), &root);
    command.args(["--option", "http2", "false"]);
    run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    assert_eq!(server.most_at_once(), 3);
    // nix-cache-info was not requested again.
    assert_eq!(server.hits().len() - asked, 2 * world.corpus.paths.len());
}

#[test]
fn a_cache_that_spoke_http2_once_is_believed_until_it_answers_otherwise() {
    let Some(world) = world() else { return };
    let home = world.scratch.join("home");
    let server = Server::start(&world.cache);
    let install = |name: &str| {
        let mut command = world.install(&server, (1, 1), &world.scratch.join(name));
        run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    };
    install("first");
    remember_http2(&home);
    server.fail("", Fault::Slow(Duration::from_millis(10)));
    // The first query is for the root path, alone, so that floe learns the protocol from it.
    install("second");
    assert_eq!(server.most_at_once(), 1);
    assert_eq!(server.hits_on("nix-cache-info").len(), 1);
}

/// Marks the only cache in the narinfo disk cache as HTTP/2, and removes all cached narinfos.
fn remember_http2(home: &Path) {
    let remembered = rusqlite::Connection::open(home.join("floe/narinfos.sqlite")).unwrap();
    let changed = remembered.execute("update caches set http2 = 1", []);
    assert_eq!(changed.unwrap(), 1);
    remembered.execute("delete from narinfos", []).unwrap();
}

#[test]
fn what_another_host_speaks_lifts_no_bound() {
    let Some(world) = world() else { return };
    let Some(openssl) = tool("openssl", "openssl") else {
        return;
    };
    let certified = certify(&openssl, world.scratch.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl http2; {}", certified.server);
    let Some(elsewhere) = nginx(&world.cache, &extra) else {
        return;
    };
    let server = Server::start(&world.cache);
    let info = "/nix-cache-info";
    let to = format!("https://127.0.0.1:{}{info}", elsewhere.port(1));
    server.fail(info, Fault::Redirect(to));
    server.fail("", Fault::Slow(Duration::from_millis(30)));
    let root = world.scratch.join("root");
    let mut command = world.install(&server, (3, 1), &root);
    command.env_remove("NIX_SSL_CERT_FILE");
    run(command.env("SSL_CERT_FILE", &certified.authority)).expect(0);
    assert!(elsewhere.log().contains("HTTP/2.0"), "{}", elsewhere.log());
    assert_eq!(server.most_at_once(), 3);
}

/// Removes `FileSize` from the narinfos with a matching number. floe treats a NAR of unknown size
/// as large.
fn without_file_sizes(world: &World, is_meant: impl Fn(usize) -> bool) {
    for (number, path) in world.corpus.paths.iter().enumerate() {
        let name = format!("{}.narinfo", &path["/nix/store/".len()..][..32]);
        let text = fs::read_to_string(world.corpus.cache("zstd").join(&name)).unwrap();
        let lines = text.split_inclusive('\n');
        let kept = lines.filter(|line| !is_meant(number) || !line.starts_with("FileSize"));
        fs::write(world.cache.join(&name), kept.collect::<String>()).unwrap();
    }
}

/// Prefetched bodies that wait for a worker must not take all connections: a worker may wait for
/// one, too.
#[test]
fn a_move_over_one_connection_with_many_large_nars_ends() {
    let Some(world) = world() else { return };
    for modulus in [1, 2] {
        without_file_sizes(&world, |number| number.is_multiple_of(modulus));
        for (connections, jobs) in [(1, 1), (1, 4), (2, 1), (2, 4)] {
            let server = Server::start(&world.cache);
            // Retried requests compete for connections that other requests hold by then.
            server.fail_times(".nar.zst", Fault::Cut(1000), 3);
            let root = world.scratch.join("root");
            let mut command = world.install(&server, (connections, jobs), &root);
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = quiet.spawn().unwrap();
            let deadline = Instant::now() + PATIENCE;
            let ended = loop {
                if let Some(ended) = child.try_wait().unwrap() {
                    break ended;
                }
                if Instant::now() > deadline {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!(
                        "{connections} connections and {jobs} jobs: {:?}",
                        server.hits()
                    );
                }
                thread::sleep(POLL);
            };
            assert!(ended.success(), "{connections} connections, {jobs} jobs");
            assert_eq!(server.faults(), 3);
            assert!(server.most_at_once() <= connections);
            assert_verified(&root, world.corpus.paths.len());
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }
}

/// Many times the duration of such an install.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often to check whether the install has ended.
const POLL: Duration = Duration::from_millis(10);
