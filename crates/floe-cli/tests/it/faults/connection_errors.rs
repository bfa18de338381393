//! Messages about servers that cannot be reached. They have no words of libraries in them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use floe_testkit::{free_ports, run, scratch, synthetic_cache};

use crate::support::floe;

/// Returns what an install from this cache prints.
fn message(from: &str) -> String {
    let scratch = scratch();
    let mut command = floe(["install", "--no-check-sigs", "--from", from, "--root"]);
    command.arg(scratch.join("root"));
    command.args(["--option", "download-attempts", "1"]);
    let ran = run(command.arg(synthetic_cache::path(0).as_str())).expect(4);
    for word in ["client error", "tcp connect error", "dns error", "corrupt"] {
        assert!(!ran.stderr.contains(word), "{word}: {}", ran.stderr);
    }
    ran.stderr
}

#[test]
fn connection_errors_use_words_of_the_user() {
    let [port] = free_ports();
    let refused = message(&format!("http://127.0.0.1:{port}"));
    assert!(
        refused.contains("nix-cache-info: Connection refused"),
        "{refused}"
    );
    assert!(
        refused.contains("check the port, and that a server runs there"),
        "{refused}"
    );

    // No server has names below `invalid` (RFC 6761).
    let unknown = message("http://cache.invalid");
    assert!(
        unknown.contains("cannot look up the host name: "),
        "{unknown}"
    );
    assert!(unknown.contains("; check the host name"), "{unknown}");
}

/// The wait for a server that is away repeats no error.
#[test]
fn error_of_an_absent_server_is_shown_twice() {
    let ([port], scratch) = (free_ports(), scratch());
    let from = format!("http://127.0.0.1:{port}");
    let mut install = floe(["install", "--no-check-sigs", "--from", &from, "--root"]);
    install.arg(scratch.join("root"));
    install.args(["--option", "outage-timeout", "5"]);
    let ran = run(install.arg(synthetic_cache::path(0).as_str())).expect(4);
    let count = |text: &str| ran.stderr.matches(text).count();
    let waits = count(&format!("waiting at most 5 seconds for {from}\n"));
    assert_eq!(
        (waits, count("Connection refused")),
        (1, 2),
        "{}",
        ran.stderr
    );
}

#[test]
fn https_to_a_plain_http_port_suggests_http() {
    for (reply, said) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "does not speak TLS on this port; try http://",
        ),
        (
            b"",
            "ended the connection at the beginning of TLS; if it does not speak TLS, try http://",
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let len = stream.read(&mut [0; 4096]).unwrap();
            assert!(len > 0);
            stream.write_all(reply).unwrap();
        });
        let printed = message(&format!("https://127.0.0.1:{port}"));
        assert!(printed.contains(said), "{printed}");
        server.join().unwrap();
    }
}
