//! `/ready` while something is wrong.

use std::fs;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{nixes, wait_until};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::serve_concurrent_nix::NixStore;
use crate::server_process::ServerProcess;

/// Waits until `/ready` has this status, and returns its checks.
#[track_caller]
fn checks(serve: &ServerProcess, status: u16) -> Value {
    let mut latest = None;
    wait_until("the status does not change", || {
        let response = serve.get("/ready");
        let is_expected = response.status == status;
        latest = Some(response);
        is_expected
    });
    let response = latest.unwrap();
    let report: Value = serde_json::from_str(response.text()).unwrap();
    assert_eq!(report["ready"], status == 200, "{report}");
    report["checks"].clone()
}

#[test]
fn locked_database_is_named_until_it_is_unlocked() {
    let nix = &nixes()[0];
    let store = NixStore::new(nix, "use-sqlite-wal = false");
    let path = store.add("first", b"the first");
    let serve = store.serve();
    assert_eq!(serve.get(&narinfo_of(&path)).status, 200);
    assert_eq!(checks(&serve, 200)["database"]["ok"], true);
    let database = store.root().join("nix/var/nix/db/db.sqlite");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let writer = Connection::open_with_flags_and_vfs(database, flags, c"unix-dotfile").unwrap();
    writer.execute_batch("begin exclusive").unwrap();
    let locked = checks(&serve, 503);
    assert_eq!(locked["database"]["ok"], false);
    let error = locked["database"]["error"].as_str().unwrap();
    assert!(
        error.contains("db.sqlite") && error.contains("locked"),
        "{error}"
    );
    assert_eq!(locked["storeDirectory"]["ok"], true);
    // One worker waits for the lock, and the other clients get the result of the check before.
    let start = Instant::now();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| serve.connect()).collect();
    for client in &mut clients {
        client.send(b"GET /ready HTTP/1.1\r\nHost: floe\r\n\r\n");
    }
    assert_eq!(serve.get("/health").text(), "ok\n");
    for client in &mut clients {
        assert_eq!(client.read_response(false).unwrap().status, 503);
    }
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    writer.execute_batch("commit").unwrap();
    assert_eq!(checks(&serve, 200)["database"]["ok"], true);
    assert_eq!(serve.stop(), "");
}

#[test]
fn missing_store_directory_is_named_until_it_is_back() {
    let nix = &nixes()[0];
    let store = NixStore::new(nix, "");
    store.add("first", b"the first");
    let serve = store.serve();
    checks(&serve, 200);
    let (dir, away) = (store.root().join("nix/store"), store.root().join("away"));
    fs::rename(&dir, &away).unwrap();
    let missing = checks(&serve, 503);
    assert_eq!(missing["storeDirectory"]["ok"], false);
    let error = missing["storeDirectory"]["error"].as_str().unwrap();
    assert!(error.contains(dir.to_str().unwrap()), "{error}");
    assert_eq!(missing["database"]["ok"], true);
    assert_eq!(serve.get("/health").status, 200);
    fs::rename(&away, &dir).unwrap();
    checks(&serve, 200);
    let database = store.root().join("nix/var/nix/db");
    fs::rename(&database, &away).unwrap();
    assert_eq!(checks(&serve, 503)["database"]["ok"], false);
    fs::rename(&away, &database).unwrap();
    checks(&serve, 200);
    assert_eq!(serve.stop(), "");
}

/// More clients than there are workers on the machines that run the tests.
const CLIENTS: usize = 60;

/// Less than the time that all workers would need if each client waited for the database.
const PROMPT: Duration = Duration::from_secs(4);
