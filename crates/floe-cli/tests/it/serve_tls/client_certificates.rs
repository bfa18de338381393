//! Clients that need a certificate.

use std::fs;
use std::process::{Command, Stdio};

use floe_testkit::{Authority, CommandOutput, Issued, nixes, run, wait_until};
use rustix::process::Signal;

use super::{Fixture, port};
use crate::server_process::ServerProcess;
use crate::support::floe;

/// Sends a request with `openssl s_client`. With `session`, stores the session there, or resumes
/// it.
fn request(
    fixture: &Fixture,
    server: &ServerProcess,
    client: &Issued,
    session: [&str; 2],
) -> CommandOutput {
    let mut command = Command::new(&fixture.openssl);
    command.args(["s_client", "-quiet", "-ign_eof", "-connect"]);
    command.arg(format!("127.0.0.1:{}", port(server)));
    command.args(["-CAfile", &fixture.authority.certificate()]);
    command
        .args(["-cert", &client.certificate, "-key", &client.key])
        .args(session);
    let input = fixture.scratch.join("request");
    fs::write(&input, "GET /nix-cache-info HTTP/1.0\r\nHost: floe\r\n\r\n").unwrap();
    run(command.stdin(Stdio::from(fs::File::open(&input).unwrap())))
}

#[test]
fn only_clients_with_certificate_of_the_authority_are_served() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let ours = Authority::create(&fixture.openssl, fixture.scratch.path(), "clients");
    let theirs = Authority::create(&fixture.openssl, fixture.scratch.path(), "others");
    let [good, expired] =
        [("good", 2), ("expired", -1)].map(|(name, days)| ours.issue(name, "DNS:client", days));
    let foreign = theirs.issue("foreign", "DNS:client", 2);
    let log = fixture.scratch.join("log").display().to_string();
    let server = fixture.serve(&[
        "--tls-client-ca",
        &ours.certificate(),
        "--access-log",
        &log,
        "--access-log-format",
        "json",
    ]);
    let narinfo = fixture.narinfo(&server);
    let curl = |client: &Issued, version: &str| {
        let files = ["--cert", &client.certificate, "--key", &client.key];
        fixture.curl(&[&files[..], &["--tls-max", version, &narinfo]].concat())
    };
    for version in ["1.2", "1.3"] {
        let found = curl(&good, version).expect(0);
        assert!(found.stdout.contains("NarHash: "), "{}", found.stdout);
        for client in [&expired, &foreign] {
            assert_ne!(curl(client, version).code, Some(0), "{version}");
        }
        let none = fixture.curl(&["--tls-max", version, &narinfo]);
        assert_ne!(none.code, Some(0), "{version}");
    }
    let refused = || {
        let log = fs::read_to_string(&log).unwrap();
        log.lines()
            .filter(|line| line.contains("clientCertificate"))
            .count()
    };
    wait_until("six refusals in the log", || refused() == 6);

    let install = |query: &str| {
        let root = fixture.scratch.join("floe");
        let mut command = floe(["install", "--from", &(server.url() + query), "--root"]);
        command.arg(&root).arg("--trusted-public-keys");
        command.args([&fixture.corpus.key, &fixture.corpus.root]);
        run(command.env("NIX_SSL_CERT_FILE", fixture.authority.certificate()))
    };
    let with = |client: &Issued| {
        let (certificate, key) = (&client.certificate, &client.key);
        format!("?tls-certificate={certificate}&tls-private-key={key}")
    };
    // floe does not repeat a request that a certificate decides.
    for (query, alert) in [
        (String::new(), "CertificateRequired"),
        (with(&expired), "CertificateExpired"),
        (with(&foreign), "UnknownCA"),
    ] {
        let before = refused();
        install(&query)
            .expect(4)
            .stderr_contains(&format!("({alert}); try ?tls-certificate="));
        wait_until("a refusal in the log", || refused() > before);
        assert_eq!(refused(), before + 1, "{alert}");
    }
    install(&with(&good)).expect(0);
    let url = server.url() + &with(&good);
    for nix in nixes().iter().filter(|nix| nix.version.contains("2.34")) {
        let root = fixture.scratch.join("nix");
        let mut command = nix.command(
            "nix",
            ["copy", "--from", &url, &fixture.corpus.root, "--to"],
        );
        command
            .arg(&root)
            .env("NIX_SSL_CERT_FILE", fixture.authority.certificate());
        let keys = format!("trusted-public-keys = {}\n", fixture.corpus.key);
        run(command.env("NIX_CONFIG", keys)).expect(0);
        nix.verify(&root, fixture.corpus.paths.len());
    }
    server.stop();
}

#[test]
fn ticket_of_removed_authority_is_not_accepted_after_reload() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let [old, new] = ["old", "new"]
        .map(|name| Authority::create(&fixture.openssl, fixture.scratch.path(), name));
    let client = old.issue("client", "DNS:client", 2);
    let authorities = fixture
        .scratch
        .join("authorities.pem")
        .display()
        .to_string();
    fs::copy(old.certificate(), &authorities).unwrap();
    let server = fixture.serve(&["--tls-client-ca", &authorities]);
    let session = fixture.scratch.join("session").display().to_string();
    let is_served = |ran: &CommandOutput| ran.stdout.contains("StoreDir: /nix/store");

    let first = request(&fixture, &server, &client, ["-sess_out", &session]);
    assert!(is_served(&first), "{}", first.stderr);
    // The certificate of the server is read again, but the tickets stay valid.
    reload(&server, 1);
    let resumed = request(&fixture, &server, &client, ["-sess_in", &session]);
    assert!(is_served(&resumed), "{}", resumed.stderr);
    // s_client shows the chain of the server only in a full handshake.
    let is_full = |ran: &CommandOutput| ran.stderr.contains("depth=");
    assert!(is_full(&first), "{}", first.stderr);
    assert!(!is_full(&resumed), "not resumed: {}", resumed.stderr);

    fs::copy(new.certificate(), &authorities).unwrap();
    reload(&server, 2);
    let removed = request(&fixture, &server, &client, ["-sess_in", &session]);
    assert!(!is_served(&removed), "{}", removed.stdout);
    server.stop();
}

/// Makes the server read its files again, and waits until it has done so `times` times.
fn reload(server: &ServerProcess, times: usize) {
    server.signal(Signal::HUP);
    let count = || {
        server
            .stderr()
            .matches("reloaded certificates, keys and logins")
            .count()
    };
    wait_until("the server reloads", || count() == times);
}
