//! Malicious, slow and numerous clients of `floe serve`.

mod full_server;
mod garbled_requests;
mod limits;
mod many_connections;
mod smuggling;
mod soak;
mod unread_logs;

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{Corpus, corpus, wait_until};

use crate::server_process::ServerProcess;

/// Returns the number of open descriptors of a server.
fn descriptors(serve: &ServerProcess) -> usize {
    fs::read_dir(format!("/proc/{}/fd", serve.pid()))
        .unwrap()
        .count()
}

/// Returns the number of open sockets: the listener and one per client.
fn sockets(serve: &ServerProcess) -> usize {
    let entries = fs::read_dir(format!("/proc/{}/fd", serve.pid())).unwrap();
    // A descriptor that was closed in the meantime has no link.
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Returns a field of `/proc/PID/status` in KiB.
fn memory(serve: &ServerProcess, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", serve.pid())).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap()
}

fn libc_nar(serve: &ServerProcess, corpus: &Corpus) -> String {
    let path = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    format!("/{}", serve.get(&narinfo_of(path)).narinfo_field("URL"))
}

#[track_caller]
fn assert_prompt(serve: &ServerProcess, target: &str, what: &str) {
    let start = Instant::now();
    assert_eq!(serve.get(target).status, 200, "{what}");
    assert!(start.elapsed() < PROMPT, "{what}: {:?}", start.elapsed());
}

#[test]
fn idle_connections_do_not_delay_others() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let (narinfo, nar) = (narinfo_of(&corpus.root), libc_nar(&serve, &corpus));
    // A server that blocks a worker per idle connection, as nix-serve does, exceeds the limit
    // below.
    let mut idle: Vec<Client> = (0..200).map(|_| serve.connect()).collect();
    let start = Instant::now();
    for (number, client) in idle.iter_mut().enumerate() {
        assert_eq!(client.request("GET", &narinfo, "").status, 200);
        assert!(
            start.elapsed() < Duration::from_secs(40),
            "connection {number}"
        );
    }
    assert_prompt(&serve, &narinfo, "a narinfo");
    assert_prompt(&serve, &nar, "a NAR");
    for client in &mut idle {
        assert_eq!(
            client.request("GET", &narinfo, "").status,
            200,
            "the connection was closed"
        );
    }
}

#[test]
fn clients_that_never_read_are_closed_and_delay_no_others() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--timeout", FAULT_TIMEOUT]);
    let without_clients = sockets(&serve);
    let nar = libc_nar(&serve, &corpus);
    let request = format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n\r\n").repeat(3);
    let mut stuck = Vec::new();
    for _ in 0..50 {
        let mut client = serve.connect();
        client.send(request.as_bytes());
        stuck.push(client);
    }
    for _ in 0..3 {
        assert_prompt(&serve, &narinfo_of(&corpus.root), "a narinfo");
        assert_prompt(&serve, &nar, "a NAR");
    }
    wait_until("the stalled connections are not closed", || {
        sockets(&serve) == without_clients
    });
    for mut client in stuck {
        // The client still receives buffered data, but not every response.
        let whole = std::iter::from_fn(|| client.read_response(false).ok()).count();
        assert!(whole < 3, "{whole} answers");
    }
    assert_prompt(&serve, &nar, "afterwards");
    serve.stop();
}

#[test]
fn slow_request_head_is_closed_at_read_timeout_not_before() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--read-timeout", FAULT_TIMEOUT]);
    let narinfo = narinfo_of(&corpus.root);
    let head = format!("GET {narinfo} HTTP/1.1\r\nHost: floe\r\nX: ");
    // The timeout starts with the connection if there was no request yet.
    let start = Instant::now();
    let mut slow: Vec<Client> = (0..50).map(|_| serve.connect()).collect();
    // One of the connections had a complete request before.
    assert_eq!(slow[0].request("GET", &narinfo, "").status, 200);
    for client in &mut slow {
        client.send(head.as_bytes());
    }
    let mut open = vec![true; slow.len()];
    while open.contains(&true) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the connection stays open with one byte at a time"
        );
        // Each client sends one byte at a time.
        std::thread::sleep(Duration::from_millis(200));
        for (client, open) in slow.iter_mut().zip(&mut open).filter(|(_, open)| **open) {
            let stream = client.stream.get_mut();
            stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            let is_closed =
                matches!(stream.read(&mut [0]), Ok(0)) || stream.write_all(b"x").is_err();
            if is_closed {
                assert!(
                    start.elapsed() >= Duration::from_millis(11_900),
                    "too early"
                );
                *open = false;
            }
        }
        assert_prompt(&serve, &narinfo, "meanwhile");
    }
    // A head that is complete before the timeout is answered.
    let mut client = serve.connect();
    client.send(head.as_bytes());
    // The end of the head comes late, but in time.
    std::thread::sleep(Duration::from_secs(1));
    client.send(b"x\r\n\r\n");
    assert_eq!(client.read_response(false).unwrap().status, 200);
    assert_eq!(serve.stop(), "");
}

#[test]
fn connection_without_request_is_closed_at_read_timeout() {
    let Some(corpus) = corpus("jq") else { return };
    let args = ["--read-timeout", "1", "--keepalive-timeout", "60"];
    let serve = ServerProcess::start(corpus.store(), &args);
    let mut asked = serve.connect();
    assert_eq!(asked.request("GET", "/", "").status, 200);
    let start = Instant::now();
    let mut silent = serve.connect();
    assert_eq!(silent.read_rest(), b"");
    assert!(start.elapsed() >= Duration::from_millis(900), "too early");
    // Much less than the keep-alive timeout between two requests.
    assert!(start.elapsed() < Duration::from_secs(20), "too late");
    assert_eq!(
        asked.request("GET", "/", "").status,
        200,
        "the used connection was closed"
    );
    assert_eq!(serve.stop(), "");
}

#[test]
fn multi_range_responses_hold_few_descriptors() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let nar = libc_nar(&serve, &corpus);
    let length = serve.get(&nar).body.len();
    let share = length / RANGES;
    let ranges: Vec<String> = (0..RANGES)
        .map(|number| format!("{}-{}", number * share, (number + 1) * share - 1))
        .collect();
    let request = format!(
        "GET {nar} HTTP/1.1\r\nHost: floe\r\nRange: bytes={}\r\n\r\n",
        ranges.join(",")
    );
    let least = descriptors(&serve);
    let mut stuck: Vec<Client> = (0..20).map(|_| serve.connect()).collect();
    for client in &mut stuck {
        client.send(request.as_bytes());
        assert_eq!(client.read_head().unwrap().status, 206);
    }
    // Each response holds a socket, the root directory, the path's directory and the current file.
    let held = descriptors(&serve) - least;
    assert!(
        held <= stuck.len() * 4 + DESCRIPTOR_TOLERANCE,
        "{held} descriptors"
    );
    assert!(held >= stuck.len() * 2, "no response is in progress");
}

#[test]
fn connections_beyond_the_maximum_get_503_until_there_is_room() {
    let Some(corpus) = corpus("jq") else { return };
    for threads in ["1", "4"] {
        let serve = ServerProcess::start(
            corpus.store(),
            &["--max-connections", "5", "--threads", threads],
        );
        let narinfo = narinfo_of(&corpus.root);
        let mut first: Vec<Client> = (0..5).map(|_| serve.connect()).collect();
        for client in &mut first {
            assert_eq!(client.request("GET", &narinfo, "").status, 200);
        }
        for _ in 0..10 {
            let refused = serve.connect().read_response(false).unwrap();
            assert_eq!(refused.status, 503, "{}", refused.head);
            assert_eq!(refused.field("Retry-After"), Some("1"));
        }
        for client in &mut first {
            assert_eq!(client.request("GET", &narinfo, "").status, 200);
        }
        drop(first);
        wait_until("a client is served", || {
            let response = serve.connect().try_request("GET", &narinfo, "");
            response.is_ok_and(|response| response.status == 200)
        });
        let stderr = serve.stop();
        assert!(stderr.contains("all 5 connections are in use"), "{stderr}");
    }
}

/// Maximum delay that other clients' faults may cause, even on a busy machine.
const PROMPT: Duration = Duration::from_secs(10);

/// Server timeouts in seconds for faulty clients. It exceeds `PROMPT`, so the timeout cannot hide
/// a server that makes other clients wait.
const FAULT_TIMEOUT: &str = "12";

/// Number of ranges. They are sent one after another.
const RANGES: usize = 16;

/// Tolerance for descriptors: each of eight or more workers opens its own view of the store with
/// about three descriptors.
const DESCRIPTOR_TOLERANCE: usize = 60;
