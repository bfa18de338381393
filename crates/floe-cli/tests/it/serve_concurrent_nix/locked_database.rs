//! Without a write-ahead log, Nix locks the whole database.

use std::io::{ErrorKind, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{TIMEOUT, nixes};
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;

use super::NixStore;

#[test]
fn locked_database_delays_only_requests_that_need_it() {
    for nix in &nixes() {
        let store = NixStore::new(nix, "use-sqlite-wal = false");
        let path = store.add("first", b"the first");
        let serve = store.serve();
        assert_eq!(serve.get(&narinfo_of(&path)).status, 200);
        let writer = lock_database(&store);
        let request = format!("GET {} HTTP/1.1\r\nHost: floe\r\n\r\n", narinfo_of(&path));
        let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| serve.connect()).collect();
        for client in &mut waiting {
            client.send(request.as_bytes());
        }
        // Time for the server to begin with the requests, which it cannot show.
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        for _ in 0..CLIENTS {
            assert_eq!(serve.get("/nix-cache-info").status, 200, "{}", nix.version);
        }
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        for client in &mut waiting {
            assert!(!has_response(client), "the database was not locked");
        }
        writer.execute_batch("commit").unwrap();
        for client in &mut waiting {
            assert_eq!(
                client.read_response(false).unwrap().status,
                200,
                "{}",
                nix.version
            );
        }
        assert_eq!(serve.stop(), "");
    }
}

#[test]
fn second_signal_ends_a_server_whose_workers_wait() {
    let nix = &nixes()[0];
    let store = NixStore::new(nix, "use-sqlite-wal = false");
    let path = store.add("first", b"the first");
    let serve = store.serve();
    let narinfo = narinfo_of(&path);
    assert_eq!(serve.get(&narinfo).status, 200);
    let _writer = lock_database(&store);
    let mut client = serve.connect();
    client.send(format!("GET {narinfo} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
    // Time for a worker to begin to wait, which it cannot show.
    thread::sleep(Duration::from_millis(500));
    assert!(!has_response(&mut client), "the database was not locked");
    serve.signal(Signal::TERM);
    // Two pending signals would count as one.
    thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    serve.signal(Signal::TERM);
    assert_eq!(serve.wait_for_signal(PROMPT), Some(Signal::TERM.as_raw()));
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
}

/// Commits a change, so that cached narinfos must be checked, and then locks the database.
fn lock_database(store: &NixStore<'_>) -> Connection {
    let database = store.root().join("nix/var/nix/db/db.sqlite");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let writer = Connection::open_with_flags_and_vfs(database, flags, c"unix-dotfile").unwrap();
    let change = "begin exclusive; update ValidPaths set registrationTime = 1; commit; \
                  begin exclusive";
    writer.execute_batch(change).unwrap();
    writer
}

/// Whether a response has begun to arrive.
fn has_response(client: &mut Client) -> bool {
    let stream = client.stream.get_mut();
    stream.set_nonblocking(true).unwrap();
    let result = stream.read(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    !matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// Enough clients for each server thread to handle several.
const CLIENTS: usize = 12;

/// Less than the timeout of a database query.
const PROMPT: Duration = Duration::from_secs(5);
