//! Clients that use up the connections of a server.

use std::io::Read as _;
use std::time::{Duration, Instant};

use floe_testkit::http_client::{Client, Response, narinfo_of};
use floe_testkit::{corpus, scratch};

use super::{PROMPT, libc_nar};
use crate::server_process::ServerProcess;

/// Requests a large NAR and reads a byte of it, now and then.
fn slow_reader(mut client: Client, nar: &str) -> Client {
    client.send(format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
    client
}

fn read_a_byte(client: &mut Client) -> bool {
    client.stream.get_mut().read_exact(&mut [0]).is_ok()
}

/// Requests a target on a new connection. Returns the response if it is a refusal.
fn refusal(serve: &ServerProcess, target: &str) -> Option<Response> {
    let mut client = serve.connect();
    // A server that closes with unread data may reset the connection before the response is read.
    match client.try_request("GET", target, "") {
        Ok(response) if response.status == 200 => None,
        Ok(response) => Some(response),
        Err(_) => refusal(serve, target),
    }
}

/// Lets time pass, as a client does that tries again later.
fn wait(time: Duration) {
    // The time is that of the client, which the server must bear.
    std::thread::sleep(time);
}

#[test]
fn one_address_cannot_use_all_connections() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let log = scratch.join("access.log");
    let args = [
        "--max-connections",
        "64",
        "--access-log-format",
        "json",
        "--access-log",
    ];
    let serve = ServerProcess::start(
        corpus.store(),
        &[&args[..], &[log.to_str().unwrap()]].concat(),
    );
    let nar = libc_nar(&serve, &corpus);
    let mut slow: Vec<Client> = (0..48)
        .map(|_| slow_reader(serve.connect_from(2), &nar))
        .collect();
    assert!(
        slow.iter_mut().all(read_a_byte),
        "a slow reader was refused"
    );
    let start = Instant::now();
    let mut refused = serve.connect_from(2);
    let response = refused.read_response(false).unwrap();
    assert_eq!(response.status, 503, "{}", response.head);
    assert_eq!(serve.get(&narinfo_of(&corpus.root)).status, 200);
    assert_eq!(serve.get(&nar).status, 200);
    assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    // A connection that ends makes room for another one of its address.
    drop(slow.pop());
    let start = Instant::now();
    while serve.connect_from(2).try_request("GET", "/", "").is_err() {
        assert!(start.elapsed() < PROMPT, "the address has no room again");
    }
    drop(slow);
    let stderr = serve.stop();
    assert!(
        stderr.contains("refusing connections: an address has 48"),
        "{stderr}"
    );
    let logged = std::fs::read_to_string(&log).unwrap();
    let refused = logged.lines().find(|line| line.contains("addressLimit"));
    let refused = refused.expect("the refusal is not logged");
    assert!(
        refused.contains("\"remoteAddress\":\"127.0.0.2\""),
        "{refused}"
    );
    assert!(refused.contains("\"status\":503"), "{refused}");
}

#[test]
fn full_server_closes_slow_readers_and_says_so() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--max-connections", "200"]);
    let nar = libc_nar(&serve, &corpus);
    // Each address has fewer than the 32 connections that are always allowed.
    let mut slow: Vec<Client> = (0..200u8)
        .map(|number| slow_reader(serve.connect_from(2 + number % 8), &nar))
        .collect();
    assert!(
        slow.iter_mut().all(read_a_byte),
        "a slow reader was refused"
    );
    let start = Instant::now();
    let narinfo = narinfo_of(&corpus.root);
    // An honest client tries again after the time of Retry-After.
    let mut refused = 0;
    while let Some(response) = refusal(&serve, &narinfo) {
        assert_eq!(response.status, 503, "{}", response.head);
        assert_eq!(response.field("Retry-After"), Some("1"));
        refused += 1;
        slow.iter_mut().for_each(|client| {
            read_a_byte(client);
        });
        assert!(
            start.elapsed() < SLOW_MAX,
            "the honest client is refused forever"
        );
        wait(Duration::from_secs(1));
    }
    assert!(refused > 0, "the server was not full");
    assert!(
        start.elapsed() > Duration::from_secs(1),
        "the server was not full"
    );
    let stderr = serve.stop();
    assert!(stderr.contains("refusing new clients: all 200"), "{stderr}");
    assert!(stderr.contains("idle or slow connections"), "{stderr}");
}

#[test]
fn full_server_closes_idle_connections() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--max-connections", "20"]);
    let mut idle: Vec<Client> = (0..20).map(|_| serve.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.request("GET", "/", "").status, 200);
    }
    let start = Instant::now();
    while refusal(&serve, "/").is_some() {
        wait(Duration::from_millis(200));
    }
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(1), "the server was not full");
    assert!(waited < Duration::from_secs(30), "{waited:?}");
}

#[test]
fn refused_requests_are_in_the_access_log() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let log = scratch.join("access.log");
    let serve = ServerProcess::start(corpus.store(), &["--access-log", log.to_str().unwrap()]);
    let long = "x".repeat(20_000);
    for (request, status) in [
        ("GET /a b HTTP/9\r\n\r\n".to_owned(), "400"),
        (format!("GET /{long}"), "414"),
        (format!("GET /b HTTP/1.1\r\nA: {long}"), "431"),
    ] {
        let response = serve.exchange(request.as_bytes());
        let head = String::from_utf8_lossy(&response).into_owned();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
    serve.stop();
    let logged = std::fs::read_to_string(&log).unwrap();
    for part in [
        "\"GET /a b HTTP/9\" 400 ",
        "\" 414 ",
        "\"GET /b HTTP/1.1\" 431 ",
    ] {
        assert!(logged.contains(part), "{part}: {logged}");
    }
    assert!(logged.len() < 1000, "{logged}");
}

#[test]
fn json_access_log_names_the_reason_of_each_refusal() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let log = scratch.join("access.log");
    let format = ["--access-log-format", "json", "--access-log"];
    // Two threads could write their lines in another order.
    let limits = ["--threads", "1", "--read-timeout", "1"];
    let args = [&format[..], &[log.to_str().unwrap()], &limits].concat();
    let serve = ServerProcess::start(corpus.store(), &args);
    let long = "x".repeat(20_000);
    let fields = "GET / HTTP/1.1\r\nHost: a\r\n";
    let cases = [
        (
            "GET /\u{1b}[2J HTTP/9\r\n\r\n".to_owned(),
            400,
            "malformedHead",
        ),
        ("GET /a HTTP/1.1\r\n\r\n".into(), 400, "invalidHost"),
        (
            format!("{fields}Content-Length: x\r\n\r\n"),
            400,
            "invalidBodyLength",
        ),
        (
            format!("{fields}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            400,
            "ambiguousBodyLength",
        ),
        ("PUT /a HTTP/1.0\r\n\r\n".into(), 405, "methodNotAllowed"),
        // This head never ends, so the server closes the connection without a response.
        (format!("{fields}X: "), 408, "headTimeout"),
        (format!("GET /{long}"), 414, "requestLineTooLong"),
        (format!("{fields}A: {long}"), 431, "headTooLong"),
    ];
    for (request, status, reason) in &cases {
        let response = serve.exchange(request.as_bytes());
        assert_eq!(response.is_empty(), *status == 408, "{reason}");
    }
    serve.stop();
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(!logged.contains('\u{1b}'), "{logged}");
    let lines: Vec<&str> = logged.lines().collect();
    assert_eq!(lines.len(), cases.len(), "{logged}");
    for (line, (_, status, reason)) in lines.iter().zip(&cases) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["status"], *status, "{line}");
        assert_eq!(line["reason"], *reason, "{line}");
    }
}

/// Two windows of the rate, and some seconds.
const SLOW_MAX: Duration = Duration::from_secs(60);
