//! Changes under load: a request after a commit sees that commit.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use super::Store;
use crate::serving::{Chance, Serve, narinfo_of};
use crate::support::nixes;

/// Sends batches of requests until `is_over`.
fn bother(serve: &Serve, path: &str, is_over: &AtomicBool, answered: &AtomicUsize) {
    let request = format!("GET {} HTTP/1.1\r\nHost: floe\r\n\r\n", narinfo_of(path));
    let batch = request.repeat(BATCH);
    let mut clients: Vec<_> = (0..20).map(|_| serve.connect()).collect();
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            client.send(batch.as_bytes());
        }
        for client in &mut clients {
            for _ in 0..BATCH {
                assert_eq!(client.answer(false).unwrap().status, 200);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Commits thousands of times in a few seconds, as Nix does, and checks each change. Continues on
/// slow machines until enough requests were answered.
fn change(serve: &Serve, store: &Store<'_>, answered: &AtomicUsize) {
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
    let mut chance = Chance(0xc0ff_ee00);
    let mut client = serve.connect();
    let start = Instant::now();
    let mut commits = 0;
    let is_enough = |commits| commits > 100 && answered.load(Ordering::Relaxed) > 5_000;
    while start.elapsed() < HOW_LONG || !is_enough(commits) {
        assert!(
            start.elapsed() < SURELY_STUCK,
            "{commits} commits, {answered:?} answers"
        );
        let part = format!("{:032}", chance.below(1_000_000_000)).replace('e', "0");
        let path = format!("/nix/store/{part}-x");
        let narinfo = narinfo_of(&path);
        for (statement, status) in [(insert, 200), (delete, 404)] {
            match status {
                200 => connection.execute(statement, params![path, hash]).unwrap(),
                _ => connection.execute(statement, params![path]).unwrap(),
            };
            commits += 1;
            let answer = client.ask("GET", &narinfo, "");
            assert_eq!(answer.status, status, "commit {commits}: {}", answer.head);
        }
    }
}

#[test]
fn no_answer_is_older_than_its_question_however_many_ask() {
    for nix in &nixes() {
        let store = Store::new(nix, "");
        let path = store.add("first", b"the first");
        // A single thread has the largest batches, so its view of the database is the oldest.
        let serve = Serve::start(store.root(), &["--threads", "1"]);
        let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| bother(&serve, &path, &is_over, &answered));
            }
            let changes = scope.spawn(|| change(&serve, &store, &answered));
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
const HOW_LONG: Duration = Duration::from_secs(3);

/// Far more than a hundred commits take on any machine.
const SURELY_STUCK: Duration = Duration::from_secs(60);
