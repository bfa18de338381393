//! A thousand busy connections while Nix changes the store, and the server reloads each second.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{Corpus, XorShift, corpus, nixes, skip, wait_until};
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
fn request_path(client: &mut Client, path: &str, counts: &Counts) -> std::io::Result<()> {
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

fn send_requests(
    serve: &ServerProcess,
    paths: &[String],
    seed: u64,
    is_over: &AtomicBool,
    counts: &Counts,
) {
    let mut rng = XorShift(seed);
    let mut clients: Vec<Client> = (0..CONNECTIONS / THREADS)
        .map(|_| serve.connect())
        .collect();
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            let path = &paths[rng.below(paths.len())];
            if request_path(client, path, counts).is_err() {
                // A response is truncated only if its path was deleted in the meantime.
                increment(&counts.broken);
                *client = serve.connect();
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

fn reload_each_second(serve: &ServerProcess, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
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
    let Some(corpus) = corpus("curl") else { return };
    if !raise_limit() {
        skip(
            "open files",
            "the hard limit is too low for a thousand connections",
        );
        return;
    }
    let minutes = std::env::var_os("FLOE_TEST_FULL").is_some();
    let nixes = nixes();
    for nix in &nixes {
        let all = if minutes {
            120
        } else {
            12 / nixes.len() as u64
        };
        let store = NixStore::new(nix, "");
        store.copy(&corpus);
        let serve = store.serve();
        let least = descriptors(&serve);
        let (is_over, counts) = (AtomicBool::new(false), Counts::default());
        let start = Instant::now();
        let middle = thread::scope(|scope| {
            let (serve, is_over, counts) = (&serve, &is_over, &counts);
            let (store, corpus, paths) = (&store, &corpus, &corpus.paths);
            for number in 1..=THREADS {
                let seed = 0x5eed * number as u64;
                scope.spawn(move || send_requests(serve, paths, seed, is_over, counts));
            }
            let ending = StopOnDrop(is_over);
            scope.spawn(move || change_store(store, corpus, is_over, &counts.rounds));
            scope.spawn(move || reload_each_second(serve, is_over));
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
        for path in &corpus.paths {
            assert_eq!(serve.get(&narinfo_of(path)).status, 200, "{path}");
        }
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

/// Many times the expected duration of each step.
const STUCK_TIMEOUT: Duration = Duration::from_secs(180);

/// KiB for a thousand connections with buffers and for full caches, with a margin.
const MEMORY_MAX: u64 = 128 * 1024;
