//! Changes under load: a request after a commit sees that commit.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::http_client::narinfo_of;
use floe_testkit::{XorShift, nixes};
use rusqlite::{Connection, params};

use super::NixStore;
use crate::server_process::ServerProcess;

/// Sends batches of requests until `is_over`.
fn send_batches(
    serve: &ServerProcess,
    path: &str,
    is_over: &AtomicBool,
    response_count: &AtomicUsize,
) {
    let request = format!("GET {} HTTP/1.1\r\nHost: floe\r\n\r\n", narinfo_of(path));
    let batch = request.repeat(BATCH);
    let mut clients: Vec<_> = (0..20).map(|_| serve.connect()).collect();
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            client.send(batch.as_bytes());
        }
        for client in &mut clients {
            for _ in 0..BATCH {
                assert_eq!(client.read_response(false).unwrap().status, 200);
                response_count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Commits thousands of times in a few seconds, as Nix does, and checks each change. Continues on
/// slow machines until enough requests were answered.
fn commit_changes(serve: &ServerProcess, store: &NixStore<'_>, response_count: &AtomicUsize) {
    let database = store.root().join("nix/var/nix/db/db.sqlite");
    let connection = Connection::open(database).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
        .pragma_update(None, "synchronous", "off")
        .unwrap();
    let insert = "insert into ValidPaths (path, hash, registrationTime, narSize) \
                  values (?1, ?2, 1, 120)";
    let delete = "delete from ValidPaths where path = ?1";
    let hash = format!("sha256:{}", "0".repeat(64));
    let mut rng = XorShift(0xc0ff_ee00);
    let mut client = serve.connect();
    let start = Instant::now();
    let mut commits = 0;
    let is_enough = |commits| commits > 100 && response_count.load(Ordering::Relaxed) > 5_000;
    while start.elapsed() < MIN_DURATION || !is_enough(commits) {
        assert!(
            start.elapsed() < STUCK_TIMEOUT,
            "{commits} commits, {response_count:?} answers"
        );
        let part = format!("{:032}", rng.below(1_000_000_000)).replace('e', "0");
        let path = format!("/nix/store/{part}-x");
        let narinfo = narinfo_of(&path);
        fs::write(store.real(&path), "").unwrap();
        for (statement, status) in [(insert, 200), (delete, 404)] {
            match status {
                200 => connection.execute(statement, params![path, hash]).unwrap(),
                _ => connection.execute(statement, params![path]).unwrap(),
            };
            commits += 1;
            let response = client.request("GET", &narinfo, "");
            assert_eq!(
                response.status, status,
                "commit {commits}: {}",
                response.head
            );
        }
    }
}

#[test]
fn responses_are_never_older_than_their_requests_under_load() {
    for nix in &nixes() {
        let store = NixStore::new(nix, "");
        let path = store.add("first", b"the first");
        // A single thread has the largest batches, so its view of the database is the oldest.
        let serve = ServerProcess::start(store.root(), &["--threads", "1"]);
        let (is_over, response_count) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| send_batches(&serve, &path, &is_over, &response_count));
            }
            let changes = scope.spawn(|| commit_changes(&serve, &store, &response_count));
            let changed = changes.join();
            is_over.store(true, Ordering::Relaxed);
            changed.unwrap();
        });
        assert_eq!(serve.stop(), "");
    }
}

/// Pipelined requests per connection.
const BATCH: usize = 50;

/// Enough time for hundreds of commits.
const MIN_DURATION: Duration = Duration::from_secs(3);

/// Far more than a hundred commits take on any machine.
const STUCK_TIMEOUT: Duration = Duration::from_secs(60);
