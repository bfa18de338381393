//! A thousand busy connections, half of them with TLS, while Nix changes the store, and the server
//! reloads another certificate each second.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{AnyClient, ClientConfig, narinfo_of, tls_config};
use floe_testkit::{
    Authority, Corpus, Issued, Scratch, XorShift, corpus, find_tool, nixes, skip, wait_until,
};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::{DESCRIPTOR_TOLERANCE, descriptors, memory};
use crate::serve_concurrent_nix::NixStore;
use crate::server_process::ServerProcess;

/// Counts of events.
#[derive(Debug, Default)]
struct Counts {
    narinfos: AtomicUsize,
    nars: AtomicUsize,
    absent: AtomicUsize,
    broken: AtomicUsize,
    /// The hashes of the certificates that clients have seen.
    certificates: Mutex<BTreeSet<[u8; 32]>>,
    /// How often Nix filled and emptied the store.
    rounds: AtomicUsize,
}

impl Counts {
    /// Returns whether each count is high enough that all caches are full.
    fn is_sufficient(&self) -> bool {
        let least = [
            (&self.narinfos, 2000),
            (&self.nars, 1000),
            (&self.absent, 10),
            (&self.rounds, 1),
        ];
        let mut counts = least.iter();
        counts.all(|(count, least)| count.load(Ordering::Relaxed) >= *least)
            && self.certificates.lock().len() == 2
    }
}

fn increment(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

/// Raises the descriptor limit of this process. Returns whether it suffices for all connections.
fn raise_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).is_ok()
        && limit
            .maximum
            .is_none_or(|most| most as usize > 2 * CONNECTIONS)
}

/// Requests a path's narinfo, and its NAR. Large NARs are requested rarely.
fn request_path(client: &mut AnyClient, path: &str, counts: &Counts) -> std::io::Result<()> {
    let narinfo = client.try_request("GET", &narinfo_of(path), "")?;
    if narinfo.status == 404 {
        increment(&counts.absent);
        return Ok(());
    }
    assert_eq!(narinfo.status, 200, "{path}: {}", narinfo.head);
    increment(&counts.narinfos);
    let size: usize = narinfo.narinfo_field("NarSize").parse().unwrap();
    if size > 1024 * 1024 && !counts.nars.load(Ordering::Relaxed).is_multiple_of(500) {
        return Ok(());
    }
    let nar = client.try_request("GET", &format!("/{}", narinfo.narinfo_field("URL")), "")?;
    match nar.status {
        200 => {
            assert_eq!(nar.body.len(), size, "{path}");
            let hash = floe_format::Hash::sha256(floe_hash::sha256(&nar.body));
            assert_eq!(narinfo.narinfo_field("NarHash"), hash.to_nix32(), "{path}");
            increment(&counts.nars);
        }
        404 => increment(&counts.absent),
        // While Nix deletes a path, its row still exists and some of its files are gone.
        500 => increment(&counts.broken),
        status => panic!("{path}: {status}"),
    }
    Ok(())
}

/// The addresses of a server, and the files of its certificate.
struct Fixture {
    address: String,
    socket: PathBuf,
    tls: Arc<ClientConfig>,
    served: Issued,
    /// The certificates that take turns.
    certificates: [Issued; 2],
}

impl Fixture {
    fn new(scratch: &Scratch, openssl: &Path) -> Fixture {
        let authority = Authority::create(openssl, scratch.path(), "authority");
        let certificates = ["one", "two"].map(|name| authority.issue(name, "IP:127.0.0.1", 2));
        let file = |name: &str| scratch.join(name).display().to_string();
        let fixture = Fixture {
            address: String::new(),
            socket: scratch.join("socket"),
            tls: tls_config(&authority.certificate()),
            served: Issued {
                certificate: file("served.pem"),
                key: file("served.key"),
            },
            certificates,
        };
        fixture.use_certificate(0);
        fixture
    }

    fn use_certificate(&self, number: usize) {
        let new = &self.certificates[number];
        fs::copy(&new.certificate, &self.served.certificate).unwrap();
        fs::copy(&new.key, &self.served.key).unwrap();
    }

    fn serve(&mut self, store: &NixStore<'_>) -> ServerProcess {
        let socket = format!("unix:{}", self.socket.display());
        let served = &self.served;
        let tls = ["--tls-cert", &served.certificate, "--tls-key", &served.key];
        let server =
            ServerProcess::start(store.root(), &[&["--listen", &socket][..], &tls].concat());
        self.address = server.url().replace("https://", "");
        server
    }

    fn connect(&self, with_tls: bool, counts: &Counts) -> AnyClient {
        if !with_tls {
            return AnyClient::connect_unix(&self.socket);
        }
        let (client, certificate) = AnyClient::connect_tls(&self.address, &self.tls).unwrap();
        let hash = floe_hash::sha256(&certificate);
        counts.certificates.lock().insert(hash);
        client
    }
}

fn send_requests(
    fixture: &Fixture,
    paths: &[String],
    number: usize,
    is_over: &AtomicBool,
    counts: &Counts,
) {
    let mut rng = XorShift(0x5eed * (number as u64 + 1));
    let connect = || fixture.connect(number.is_multiple_of(2), counts);
    let mut clients: Vec<AnyClient> = (0..CONNECTIONS / THREADS).map(|_| connect()).collect();
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            let path = &paths[rng.below(paths.len())];
            if request_path(client, path, counts).is_err() {
                // A response is truncated only if its path was deleted in the meantime.
                increment(&counts.broken);
                *client = connect();
            } else if rng.below(RECONNECTS) == 0 {
                *client = connect();
            }
        }
    }
}

/// Lets Nix copy a closure and collect it again, and counts the rounds.
fn change_store(store: &NixStore<'_>, corpus: &Corpus, is_over: &AtomicBool, rounds: &AtomicUsize) {
    while !is_over.load(Ordering::Relaxed) {
        store.copy(corpus);
        // Requests find the closure for a while.
        thread::sleep(Duration::from_millis(1500));
        store.run(&["--gc"]);
        increment(rounds);
    }
}

/// Exchanges the certificate each second.
fn reload_each_second(serve: &ServerProcess, fixture: &Fixture, is_over: &AtomicBool) {
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number = 1 - number;
        fixture.use_certificate(number);
        serve.signal(Signal::HUP);
        // Nothing but the time decides about the next one.
        thread::sleep(Duration::from_secs(1));
    }
}

/// Tells the other threads to end, even if this thread panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until a condition is true. Panics after a timeout.
#[track_caller]
fn wait_for(what: &str, counts: &Counts, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + STUCK_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: {counts:?}");
        // A failure names the counts, which change until then.
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn thousand_busy_connections_leak_neither_memory_nor_sockets() {
    let (Some(corpus), Some(openssl)) = (corpus("curl"), find_tool("openssl", "openssl")) else {
        return;
    };
    if !raise_limit() {
        skip(
            "open files",
            "the hard limit is too low for a thousand connections",
        );
        return;
    }
    let is_full = std::env::var_os("FLOE_TEST_FULL").is_some();
    let duration = if is_full { FULL_DURATION } else { CI_DURATION };
    let nixes = nixes();
    for nix in &nixes {
        let all = duration.as_secs() / nixes.len() as u64;
        let store = NixStore::new(nix, "");
        store.copy(&corpus);
        let mut fixture = Fixture::new(&store.scratch, &openssl);
        let serve = fixture.serve(&store);
        let least = descriptors(&serve);
        let (is_over, counts) = (AtomicBool::new(false), Counts::default());
        let start = Instant::now();
        let middle = thread::scope(|scope| {
            let (serve, fixture) = (&serve, &fixture);
            let (is_over, counts) = (&is_over, &counts);
            let (store, corpus, paths) = (&store, &corpus, &corpus.paths);
            for number in 0..THREADS {
                scope.spawn(move || send_requests(fixture, paths, number, is_over, counts));
            }
            let ending = StopOnDrop(is_over);
            scope.spawn(move || change_store(store, corpus, is_over, &counts.rounds));
            scope.spawn(move || reload_each_second(serve, fixture, is_over));
            // The load lasts for a given time.
            thread::sleep(Duration::from_secs(all / 2));
            wait_for("too few requests", counts, || counts.is_sufficient());
            wait_for("not all clients are connected", counts, || {
                descriptors(serve) >= CONNECTIONS
            });
            let middle = memory(serve, "VmRSS:");
            let rounds = || counts.rounds.load(Ordering::Relaxed);
            let (half, end) = (rounds(), start + Duration::from_secs(all));
            wait_for("too few changes by Nix", counts, || {
                rounds() > half && Instant::now() >= end
            });
            drop(ending);
            middle
        });
        store.copy(&corpus);
        let (end, most) = (memory(&serve, "VmRSS:"), memory(&serve, "VmHWM:"));
        let [narinfos, nars, absent, broken] = [
            &counts.narinfos,
            &counts.nars,
            &counts.absent,
            &counts.broken,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let what = format!(
            "{}: {narinfos} narinfos, {nars} NARs, {absent} absent, {broken} broken off; RSS \
             {middle} KiB, then {end}, at most {most}",
            nix.version
        );
        print_figures(&what);
        assert!(broken * 100 < nars, "{what}");
        assert!(most < MEMORY_MAX, "{what}");
        assert!(end < middle + middle / 4 + 8 * 1024, "{what}: memory grows");
        wait_until("connections remain open", || {
            descriptors(&serve) <= least + DESCRIPTOR_TOLERANCE
        });
        let mut client = fixture.connect(true, &counts);
        for path in &corpus.paths {
            assert_eq!(
                client.request("GET", &narinfo_of(path), "").status,
                200,
                "{path}"
            );
        }
        drop(client);
        let stderr = serve.stop();
        let reloads = stderr.matches("reloaded certificates").count() as u64;
        assert!(reloads >= all / 2, "{reloads} reloads in {all} s");
        assert!(
            !stderr.contains("panic") && !stderr.contains("too many open"),
            "{stderr}"
        );
    }
}

/// Prints figures, visible with `--nocapture`.
#[expect(clippy::print_stderr, reason = "measurements for the developer")]
fn print_figures(what: &str) {
    eprintln!("{what}");
}

const CONNECTIONS: usize = 1000;
const THREADS: usize = 8;

/// The load on the servers of all versions of Nix together.
const CI_DURATION: Duration = Duration::from_secs(30);
const FULL_DURATION: Duration = Duration::from_secs(600);

/// A client connects anew after this number of requests, on average.
const RECONNECTS: usize = 50;

/// Many times the expected duration of each step.
const STUCK_TIMEOUT: Duration = Duration::from_secs(180);

/// KiB for a thousand connections with buffers and for full caches, with a margin.
const MEMORY_MAX: u64 = 128 * 1024;
