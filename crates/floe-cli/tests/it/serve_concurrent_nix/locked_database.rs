//! Without a write-ahead log, Nix locks the whole database.

use std::io::{ErrorKind, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{TIMEOUT, nixes};
use rusqlite::{Connection, OpenFlags};

use super::NixStore;

#[test]
fn locked_database_delays_only_requests_that_need_it() {
    for nix in &nixes() {
        let store = NixStore::new(nix, "use-sqlite-wal = false");
        let path = store.add("first", b"the first");
        let serve = store.serve();
        assert_eq!(serve.get(&narinfo_of(&path)).status, 200);
        let database = store.root().join("nix/var/nix/db/db.sqlite");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
        let writer = Connection::open_with_flags_and_vfs(database, flags, c"unix-dotfile").unwrap();
        // Commit a change, so that cached narinfos must be checked, and then lock the database.
        let change = "begin exclusive; update ValidPaths set registrationTime = 1; commit; \
                      begin exclusive";
        writer.execute_batch(change).unwrap();
        let request = format!("GET {} HTTP/1.1\r\nHost: floe\r\n\r\n", narinfo_of(&path));
        let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| serve.connect()).collect();
        for client in &mut waiting {
            client.send(request.as_bytes());
        }
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        for _ in 0..CLIENTS {
            assert_eq!(serve.get("/nix-cache-info").status, 200, "{}", nix.version);
        }
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
        for client in &mut waiting {
            let stream = client.stream.get_mut();
            stream.set_nonblocking(true).unwrap();
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(
                error.kind(),
                ErrorKind::WouldBlock,
                "the database was not locked"
            );
            stream.set_nonblocking(false).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
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

/// Enough clients for each server thread to handle several.
const CLIENTS: usize = 12;

/// Less than the timeout of a database query.
const PROMPT: Duration = Duration::from_secs(5);
