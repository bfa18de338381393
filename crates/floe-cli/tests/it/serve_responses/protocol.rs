//! HTTP itself: versions, connections, and invalid requests.

use std::time::{Duration, Instant};

use floe_testkit::http_client::{hash_part, narinfo_of};
use floe_testkit::{TIMEOUT, corpus};
use rustix::process::Signal;

use super::{NO_STORE_HEADERS, assert_response, libc_path, nar_target, serve_jq};
use crate::server_process::ServerProcess;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn modifying_methods_are_405() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let nar = nar_target(&serve, &corpus.root);
    for method in [
        "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "get",
    ] {
        for target in [&narinfo_of(&corpus.root), &nar, "/", "/no-such"] {
            let mut client = serve.connect();
            let response = client.request(method, target, "");
            assert_response(method, &response, 405, NO_STORE_HEADERS);
            assert_eq!(response.field("Allow"), Some("GET, HEAD"), "{method}");
            assert_eq!(
                client.request("GET", "/nix-cache-info", "").status,
                200,
                "{method}"
            );
        }
    }
}

#[test]
fn request_body_is_never_parsed_as_a_request() {
    let Some((_corpus, serve)) = serve_jq() else {
        return;
    };
    let inner = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let length = format!("Content-Length: {}\r\n", inner.len());
    let chunked = "Transfer-Encoding: chunked\r\n";
    let valid = [
        length.clone(),
        format!("{length}Expect: 100-continue\r\n"),
        chunked.into(),
    ];
    // It is not certain where such a request ends (RFC 9112, section 6.3).
    let invalid = [
        format!("{length}Content-Length: 0\r\n"),
        format!("Content-Length: 0\r\n{length}"),
        format!("{chunked}Content-Length: 0\r\n"),
        format!("{length}{chunked}"),
        "Content-Length: x\r\n".into(),
        "Content-Length:\r\n".into(),
        "Content-Length: -1\r\n".into(),
        "Content-Length: +5\r\n".into(),
        "Content-Length: 18446744073709551616\r\n".into(),
    ];
    for (method, status) in [("PUT", "405"), ("GET", "200")] {
        let valid = valid.iter().map(|fields| (fields, status));
        for (fields, status) in valid.chain(invalid.iter().map(|fields| (fields, "400"))) {
            let request = format!(
                "{method} /nix-cache-info HTTP/1.1\r\nHost: floe\r\n{fields}\r\n{inner}{inner}"
            );
            let response = text(&serve.exchange(request.as_bytes()));
            assert!(
                response.starts_with(&format!("HTTP/1.1 {status} ")),
                "{fields}: {response}"
            );
            assert_eq!(
                response.matches("HTTP/1.1 ").count(),
                1,
                "{fields}: {response}"
            );
            assert!(
                response.contains("Connection: close\r\n"),
                "{fields}: {response}"
            );
        }
    }
    let mut client = serve.connect();
    let response = client.request("POST", "/", "Content-Length: 0\r\n");
    assert_eq!(response.status, 405);
    assert_eq!(
        client.request("GET", "/", "").status,
        200,
        "the connection was closed after an empty body"
    );
}

#[test]
fn large_upload_is_answered_with_405() {
    let Some((_corpus, serve)) = serve_jq() else {
        return;
    };
    let length = 4 * 1024 * 1024;
    let mut request =
        format!("PUT /nar/x.nar HTTP/1.1\r\nHost: floe\r\nContent-Length: {length}\r\n\r\n")
            .into_bytes();
    request.resize(request.len() + length, b'x');
    let response = text(&serve.exchange(&request));
    assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
}

#[test]
fn connection_persistence_follows_version_and_header() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let narinfo = narinfo_of(&corpus.root);
    let nar = nar_target(&serve, libc_path(&corpus));
    for target in [narinfo.as_str(), nar.as_str(), "/no-such"] {
        let status = if target == "/no-such" { 404 } else { 200 };
        let length = serve.get(target).body.len();
        for (version, field, kept) in [
            ("1.0", "", false),
            ("1.0", "Connection: keep-alive\r\n", true),
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: Keep-Alive, CLOSE\r\n", false),
        ] {
            let what = format!("{target} {version} {field}");
            let mut client = serve.connect();
            let head = format!("GET {target} HTTP/{version}\r\nHost: floe\r\n{field}\r\n");
            client.send(head.as_bytes());
            let response = client.read_response(false).unwrap();
            assert_eq!(
                (response.status, response.body.len()),
                (status, length),
                "{what}"
            );
            let connection = match (kept, version) {
                (false, _) => Some("close"),
                (true, "1.0") => Some("keep-alive"),
                (true, _) => None,
            };
            assert_eq!(response.field("Connection"), connection, "{what}");
            if kept {
                assert_eq!(client.request("GET", &narinfo, "").status, 200, "{what}")
            } else {
                assert_eq!(client.read_rest(), b"", "{what}")
            }
        }
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let mut targets: Vec<String> = Vec::new();
    for path in &corpus.paths {
        let nar = nar_target(&serve, path);
        let file = format!("/serve/{}/", hash_part(path));
        targets.extend([narinfo_of(path), nar, "/no-such".into(), file]);
    }
    let expected: Vec<_> = targets.iter().map(|target| serve.get(target)).collect();
    let request = |target: &String| format!("GET {target} HTTP/1.1\r\nHost: floe\r\n\r\n");
    let all: String = targets.iter().map(request).collect();
    // Send the requests at once, and in pieces with arbitrary boundaries.
    for piece in [all.len(), 100, 7] {
        let mut client = serve.connect();
        let mut sender = client.stream.get_ref().try_clone().unwrap();
        let bytes = all.clone();
        let sending = std::thread::spawn(move || {
            for part in bytes.as_bytes().chunks(piece) {
                std::io::Write::write_all(&mut sender, part).unwrap();
            }
        });
        for (target, expected) in targets.iter().zip(&expected) {
            let response = client.read_response(false).unwrap();
            assert_eq!(response.stable_head(), expected.stable_head(), "{target}");
            assert!(response.body == expected.body, "{target}");
        }
        sending.join().unwrap();
    }
}

#[test]
fn pipelined_requests_of_a_late_reader_are_answered() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let narinfo = serve.get(&narinfo_of(&corpus.root));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: floe\r\n\r\n",
        narinfo_of(&corpus.root)
    );
    let mut client = serve.connect();
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let all = request.repeat(PIPELINED_REQUESTS);
    let sending = std::thread::spawn(move || {
        std::io::Write::write_all(&mut sender, all.as_bytes()).unwrap();
    });
    // The reader is late, so that responses fill the buffers.
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..PIPELINED_REQUESTS {
        let response = client.read_response(false).unwrap();
        assert!(response.body == narinfo.body, "number {number}");
    }
    sending.join().unwrap();
}

#[test]
fn slow_reader_is_not_subject_to_read_timeouts() {
    let Some(corpus) = corpus("jq") else { return };
    // These timeouts apply to requests and idle connections, not to pending responses.
    let args = ["--read-timeout", "2", "--keepalive-timeout", "2"];
    let serve = ServerProcess::start(corpus.store(), &args);
    let narinfo = serve.get(&narinfo_of(&corpus.root));
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: floe\r\n\r\n",
        narinfo_of(&corpus.root)
    );
    let mut client = serve.connect();
    let mut sender = client.stream.get_ref().try_clone().unwrap();
    let batch = request.repeat(100);
    let sending = std::thread::spawn(move || {
        for _ in 0..PIPELINED_REQUESTS / 100 {
            // In these pauses the server waits for requests.
            std::thread::sleep(Duration::from_millis(2));
            // If the server closes the connection, the reader reports the error.
            let sent = std::io::Write::write_all(&mut sender, batch.as_bytes());
            if sent.is_err() {
                return;
            }
        }
    });
    // More than twice the timeouts.
    std::thread::sleep(Duration::from_secs(5));
    for number in 0..PIPELINED_REQUESTS {
        let response = client.read_response(false);
        let response = response.unwrap_or_else(|error| panic!("number {number}: {error}"));
        assert!(response.body == narinfo.body, "number {number}");
    }
    sending.join().unwrap();
    // Once all responses are read, the timeouts apply.
    assert_eq!(client.read_rest(), b"");
}

#[test]
fn client_that_shuts_down_writing_is_answered_and_closed() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let nar = nar_target(&serve, libc_path(&corpus));
    for target in [narinfo_of(&corpus.root), nar] {
        for round in 0..100 {
            let start = Instant::now();
            let mut client = serve.connect();
            let half = round % 2 == 1;
            let request = format!("GET {target} HTTP/1.1\r\nHost: floe\r\n\r\n");
            let end = if half { "GET /" } else { "" };
            client.send(format!("{request}{end}").as_bytes());
            let stream = client.stream.get_ref();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.read_response(false).unwrap().status, 200);
            assert_eq!(client.read_rest(), b"");
            let elapsed = start.elapsed();
            assert!(
                elapsed < Duration::from_secs(5),
                "round {round}: {elapsed:?}"
            );
        }
    }
}

#[test]
fn request_head_may_arrive_byte_by_byte() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let mut client = serve.connect();
    for line_end in ["\r\n", "\n"] {
        let target = narinfo_of(&corpus.root);
        let head = format!("GET {target} HTTP/1.1{line_end}Host: floe{line_end}{line_end}");
        for byte in head.as_bytes() {
            client.send(&[*byte]);
        }
        assert_eq!(client.read_response(false).unwrap().status, 200);
    }
}

#[test]
fn all_forms_of_request_targets_are_parsed() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let narinfo = narinfo_of(&corpus.root);
    for (target, status) in [
        (format!("http://floe{narinfo}"), 200),
        (format!("https://user@floe:123{narinfo}?x=http://y/z"), 200),
        ("http://floe".into(), 200),
        ("http://floe?x".into(), 200),
        (
            format!("/%{:x}{}", narinfo.as_bytes()[1], &narinfo[2..]),
            200,
        ),
        (format!("{narinfo}%"), 404),
        (narinfo[1..].into(), 404),
        ("*".into(), 404),
        ("floe:443".into(), 404),
    ] {
        let response = serve.get(&target);
        assert_eq!(response.status, status, "{target}");
    }
    let connect = serve.connect().request("CONNECT", "floe:443", "");
    assert_eq!(connect.status, 405);
}

#[test]
fn invalid_request_is_rejected_and_connection_closed() {
    let Some((_corpus, serve)) = serve_jq() else {
        return;
    };
    let long = "x".repeat(100_000);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".into(), 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 400),
        ("GET /\r\n\r\n".into(), 400),
        ("GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".into(), 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n".into(), 400),
        ("\0\0\0\0".into(), 400),
        ("\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03".into(), 400),
        ("garbage garbage garbage\r\n\r\n".into(), 400),
        (format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"), 414),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n"),
            431,
        ),
        (
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "X: y\r\n".repeat(200)
            ),
            431,
        ),
    ] {
        let name = request.get(..request.len().min(40)).unwrap();
        let start = Instant::now();
        let response = text(&serve.exchange(request.as_bytes()));
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{name:?}: {response:?}"
        );
        assert!(
            response.contains("Connection: close\r\n"),
            "{name:?}: {response}"
        );
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{name:?}: {:?}",
            start.elapsed()
        );
        assert_eq!(serve.get("/nix-cache-info").status, 200, "{name:?}");
    }
}

#[test]
fn shutdown_finishes_responses_and_ends_at_once() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let nar = nar_target(&serve, libc_path(&corpus));
    let mut idle = serve.connect();
    assert_eq!(idle.request("GET", "/", "").status, 200);
    let mut client = serve.connect();
    client.send(format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
    let head = client.read_head().unwrap();
    let stopped = Instant::now();
    serve.signal(Signal::TERM);
    assert_eq!(idle.read_rest(), b"", "the idle connection was not closed");
    // The client reads late.
    std::thread::sleep(Duration::from_millis(200));
    let body = client.read_rest();
    assert_eq!(
        head.field("Content-Length"),
        Some(body.len().to_string().as_str())
    );
    serve.wait(TIMEOUT);
    // The server must end when the response is sent, not after the ten seconds that it may wait.
    assert!(
        stopped.elapsed() < Duration::from_secs(8),
        "{:?}",
        stopped.elapsed()
    );
}

#[test]
fn second_signal_ends_server_with_active_client() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let nar = nar_target(&serve, libc_path(&corpus));
    // Request the NAR many times and read slowly: without the signal this takes minutes.
    let requests = format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n\r\n").repeat(50);
    let mut idle = serve.connect();
    assert_eq!(idle.request("GET", "/", "").status, 200);
    let mut client = serve.connect();
    client.send(requests.as_bytes());
    let (stop_reader, stopped) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        let mut read = 0;
        while let Ok(len @ 1..) = std::io::Read::read(&mut client.stream, &mut buffer) {
            read += len;
            let _: Result<(), _> = begin.send(());
            if stopped.recv_timeout(Duration::from_millis(2)).is_ok() {
                break;
            }
        }
        read
    });
    begun.recv_timeout(TIMEOUT).unwrap();
    serve.signal(Signal::TERM);
    // Two pending signals would count as one. The server has handled the first when it closes the
    // idle connection.
    assert_eq!(idle.read_rest(), b"");
    serve.signal(Signal::TERM);
    // Less than the grace period for responses after the first signal.
    serve.wait(Duration::from_secs(8));
    let _: Result<(), _> = stop_reader.send(());
    assert!(reader.join().unwrap() > 0, "no response was in progress");
}

#[test]
fn pipelined_request_after_close_does_not_reset_response() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    for _ in 0..20 {
        // The first request fills the server's read buffer, so the second stays in the socket
        // buffer.
        let mut first = String::from("GET / HTTP/1.1\r\nHost: floe\r\nConnection: close\r\nX: ");
        first.push_str(&"x".repeat(4096 - 4 - first.len()));
        first.push_str("\r\n\r\n");
        let mut client = serve.connect();
        client.send((first + "GET / HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
        assert_eq!(client.read_response(false).unwrap().status, 200);
        let mut rest = Vec::new();
        let end = std::io::Read::read_to_end(&mut client.stream, &mut rest);
        assert_eq!(end.unwrap(), 0, "unexpected bytes after the response");
    }
}

/// The responses to this many requests exceed the socket buffers of a connection.
const PIPELINED_REQUESTS: usize = 20_000;
