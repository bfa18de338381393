//! SIGHUP reads certificates and keys anew.

use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use floe_testkit::{run, wait_until};
use rustix::process::Signal;

use super::{Fixture, port};
use crate::server_process::ServerProcess;

/// Returns the subject of the certificate that a new client gets.
fn subject(fixture: &Fixture, server: &ServerProcess) -> String {
    let mut command = Command::new(&fixture.openssl);
    let address = format!("127.0.0.1:{}", port(server));
    let ran = run(command.args(["s_client", "-connect", &address]));
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("subject="));
    line.unwrap_or_else(|| panic!("{}", ran.stderr))
        .trim()
        .to_owned()
}

#[test]
fn reload_changes_new_connections_and_drops_none() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let server = fixture.serve(&[]);
    // A client with an open connection.
    let mut client = Command::new(&fixture.openssl)
        .args(["s_client", "-quiet", "-ign_eof", "-connect"])
        .arg(format!("127.0.0.1:{}", port(&server)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (client.stdin.take().unwrap(), client.stdout.take().unwrap());
    let mut ask = |fields: &str| {
        let request = format!("GET /nix-cache-info HTTP/1.1\r\nHost: floe\r\n{fields}\r\n");
        input.write_all(request.as_bytes()).unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"Priority: 30\n") {
            let mut chunk = [0; 1024];
            let len = output.read(&mut chunk).unwrap();
            assert_ne!(len, 0, "closed: {}", String::from_utf8_lossy(&response));
            response.extend_from_slice(&chunk[..len]);
        }
    };
    ask("");
    assert_eq!(subject(&fixture, &server), "CN = floe server");

    let renewed = fixture.authority.issue("renewed", "IP:127.0.0.1", 2);
    fs::copy(&renewed.certificate, &fixture.server.certificate).unwrap();
    // The key is still the old one.
    server.signal(Signal::HUP);
    wait_until("the server refuses half of the pair", || {
        server
            .stderr()
            .contains("do not belong together; keeping the earlier")
    });
    assert_eq!(subject(&fixture, &server), "CN = floe server");

    fs::copy(&renewed.key, &fixture.server.key).unwrap();
    server.signal(Signal::HUP);
    wait_until("the server reloads", || {
        server
            .stderr()
            .contains("reloaded certificates, keys and logins")
    });
    assert_eq!(subject(&fixture, &server), "CN = floe renewed");
    ask("Connection: close\r\n");
    assert!(client.wait().unwrap().success());
    server.stop();
}

#[test]
fn broken_file_at_reload_keeps_all_earlier_ones() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let other = fixture.authority.issue("other", "DNS:other.test", 2);
    let server = fixture.serve(&["--tls-cert", &other.certificate, "--tls-key", &other.key]);
    let renewed = fixture.authority.issue("renewed", "IP:127.0.0.1", 2);
    fs::copy(&renewed.certificate, &fixture.server.certificate).unwrap();
    fs::copy(&renewed.key, &fixture.server.key).unwrap();
    let whole = fs::read_to_string(&other.certificate).unwrap();
    let expired = fixture.authority.issue("expired", "DNS:other.test", -1);
    let text = |file: &str| fs::read_to_string(file).unwrap();
    let (half, key) = (&whole[..whole.len() / 2], text(&other.key));
    for (certificate, key, reason) in [
        ("", &key, "it has no certificate"),
        (half, &key, "cannot use the certificates"),
        (
            &text(&expired.certificate),
            &text(&expired.key),
            "expired on",
        ),
    ] {
        fs::write(&other.certificate, certificate).unwrap();
        fs::write(&other.key, key).unwrap();
        let count = || server.stderr().matches("keeping the earlier").count();
        let before = count();
        server.signal(Signal::HUP);
        wait_until("the server refuses the file", || count() > before);
        let stderr = server.stderr();
        let line = stderr.lines().last().unwrap();
        assert!(
            line.contains(reason) && line.contains(&other.certificate),
            "{line}"
        );
        assert_eq!(subject(&fixture, &server), "CN = floe server", "{reason}");
    }
    server.stop();
}
