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
fn broken_handshake_messages_end_only_their_connection() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let server = fixture.serve(&["--threads", "1"]);
    for bytes in [
        // Two messages in a record.
        &b"\x16\x03\x01\x00\x08\x14\x00\x00\x00\x14\x00\x00\x00"[..],
        // A part of a ClientHello, and then a record of another type.
        b"\x16\x03\x01\x00\x05\x01\x00\x00\xff\x03\x15\x03\x01\x00\x02\x01\x00",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\xff\x03\x17\x03\x01\x00\x02\x01\x00",
        b"\x16\x03\x01\x00\x05\x01\x00\x00\xff\x03\x16\x03\x01\x50\x00\x01\x00",
    ] {
        exchange(&server, bytes);
        let mut pieces = connect(&server);
        for byte in bytes {
            if pieces.write_all(&[*byte]).is_err() {
                break;
            }
        }
        let found = fixture.curl(&[&fixture.narinfo(&server)]).expect(0);
        assert!(found.stdout.contains("NarHash: "), "{}", found.stdout);
    }
    let stderr = server.stop();
    assert!(!stderr.contains("panic"), "{stderr}");
}

#[test]
fn mutated_client_hello_causes_no_panic() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let server = fixture.serve(&["--threads", "1"]);
    let hello = client_hello(&fixture, &server);
    let mut random = 0x_f10e_u64;
    for _ in 0..400 {
        let mut bytes = hello.clone();
        for _ in 0..3 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = usize::try_from(random >> 8).unwrap() % bytes.len();
            bytes[place] ^= 1 << (random % 8);
        }
        let mut stream = connect(&server);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _: std::io::Result<usize> = stream.read_to_end(&mut answer);
    }
    let found = fixture.curl(&[&fixture.narinfo(&server)]).expect(0);
    assert!(found.stdout.contains("NarHash: "), "{}", found.stdout);
    let stderr = server.stop();
    assert!(!stderr.contains("panic"), "{stderr}");
}

/// Returns the first message of a real client.
fn client_hello(fixture: &Fixture, server: &ServerProcess) -> Vec<u8> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = fixture.narinfo(server);
    let url = url.replace(&port(server), &address.port().to_string());
    std::thread::scope(|scope| {
        scope.spawn(|| fixture.curl(&[&url]));
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let mut body = vec![0; u16::from_be_bytes([head[3], head[4]]).into()];
        stream.read_exact(&mut body).unwrap();
        [&head[..], &body].concat()
    })
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
