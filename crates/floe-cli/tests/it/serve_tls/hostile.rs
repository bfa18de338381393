//! Clients that do not speak TLS, or speak it badly.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use floe_testkit::{TIMEOUT, wait_until};

use super::{Fixture, port, text};
use crate::server_process::ServerProcess;

fn connect(server: &ServerProcess) -> TcpStream {
    let stream = TcpStream::connect(format!("127.0.0.1:{}", port(server))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Sends bytes, and returns everything until the server closes the connection.
fn exchange(server: &ServerProcess, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    let mut received = Vec::new();
    // A server that closes with unread data resets the connection.
    let _: std::io::Result<usize> = stream.read_to_end(&mut received);
    received
}

/// A record that claims to hold a ClientHello.
const BAD_HELLO: [u8; 9] = [0x16, 3, 1, 0, 4, 1, 0, 0, 0];

#[test]
fn client_without_tls_is_told_to_use_https() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let log = text(&fixture.scratch.join("log"));
    let server = fixture.serve(&["--access-log", &log, "--access-log-format", "json"]);
    let plain = exchange(
        &server,
        b"GET /nix-cache-info HTTP/1.1\r\nHost: floe\r\n\r\n",
    );
    let plain = String::from_utf8(plain).unwrap();
    assert!(plain.starts_with("HTTP/1.1 400 "), "{plain}");
    assert!(
        plain.ends_with("use a URL that begins with https://\n"),
        "{plain}"
    );
    let length: usize = plain.split_once("Content-Length: ").unwrap().1[..2]
        .parse()
        .unwrap();
    assert_eq!(plain.split_once("\r\n\r\n").unwrap().1.len(), length);
    for bytes in [
        &BAD_HELLO[..],
        &[0; 100],
        &[0xff; 5000],
        b"\x16\x03\x01\xff\xff",
    ] {
        let answer = exchange(&server, bytes);
        assert!(answer.len() < 20, "{answer:?}");
    }
    let refused = |reason: &str| {
        let log = fs::read_to_string(&log).unwrap();
        log.lines().filter(|line| line.contains(reason)).count()
    };
    wait_until("the log has the reasons", || {
        refused("plainHttp") == 1 && refused("tlsProtocol") >= 3
    });
    let found = fixture.curl(&[&fixture.narinfo(&server)]).expect(0);
    assert!(found.stdout.contains("NarHash: "), "{}", found.stdout);
    server.stop();
}

#[test]
fn unfinished_handshake_ends_after_the_read_timeout() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let log = text(&fixture.scratch.join("log"));
    let args = [
        "--read-timeout",
        "2",
        "--access-log",
        &log,
        "--access-log-format",
        "json",
    ];
    let server = fixture.serve(&args);
    let mut stream = connect(&server);
    let began = Instant::now();
    // A byte now and then does not extend the time.
    stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    for byte in [0x16, 3, 1, 1, 0].into_iter().chain([1; 80]) {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        let mut end = [0; 1];
        match stream.read(&mut end) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
            Ok(_) => panic!("the server sent {end:?}"),
        }
    }
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert!(elapsed > Duration::from_secs(1), "{elapsed:?}");
    wait_until("the log has the reason", || {
        fs::read_to_string(&log).unwrap().contains("tlsTimeout")
    });
    server.stop();
}
