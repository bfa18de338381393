//! Certificates and keys that the server refuses at its start.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::{CERTIFICATE_OF_VERSION_1, Issued, run, wait_until};
use rustix::process::Signal;

use super::{Fixture, text};
use crate::serve_options::serve;

#[test]
fn unusable_file_is_refused_at_start_and_named() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let place = |name: &str| text(&fixture.scratch.join(name));
    let write = |name: &str, contents: &str| {
        fs::write(fixture.scratch.join(name), contents).unwrap();
        place(name)
    };
    let good = &fixture.server;
    let [certificate, key] =
        [&good.certificate, &good.key].map(|file| fs::read_to_string(file).unwrap());
    let other = fixture.authority.issue("other", "IP:127.0.0.1", 2);
    let half_certificate = write("half.pem", &certificate[..certificate.len() / 2]);
    let half_key = write("half.key", &key[..key.len() / 2]);
    let empty = write("empty.pem", "");
    let damaged = write("damaged.pem", &certificate.replacen("MII", "AAA", 1));
    let version_1 = write("version-1.pem", CERTIFICATE_OF_VERSION_1);
    let absent = place("absent.pem");
    let fifo = place("fifo.pem");
    rustix::fs::mkfifoat(rustix::fs::CWD, &*fifo, rustix::fs::Mode::RWXU).unwrap();
    let directory = text(fixture.scratch.path());
    for (certificate, key, named, reason) in [
        (&absent, &good.key, &absent, "No such file"),
        (&good.certificate, &absent, &absent, "No such file"),
        (&fifo, &good.key, &fifo, "not a regular file"),
        (
            &good.certificate,
            &directory,
            &directory,
            "not a regular file",
        ),
        (&empty, &good.key, &empty, "no certificate"),
        (&good.key, &good.key, &good.key, "no certificate"),
        (
            &half_certificate,
            &good.key,
            &half_certificate,
            "cannot use the certificates",
        ),
        (&damaged, &good.key, &damaged, "cannot use the certificates"),
        (
            &version_1,
            &good.key,
            &version_1,
            "its version of X.509 is not 3",
        ),
        (
            &good.certificate,
            &good.certificate,
            &good.certificate,
            "no private key",
        ),
        (
            &good.certificate,
            &half_key,
            &half_key,
            "cannot use the key",
        ),
        (
            &good.certificate,
            &other.key,
            &other.key,
            "do not belong together",
        ),
    ] {
        let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
        command.arg(fixture.corpus.store());
        command.args(["--tls-cert", certificate, "--tls-key", key]);
        for check in [&[][..], &["--check"]] {
            let ran = run(command.args(check)).expect(1);
            let ran = ran.stderr_contains(reason).stderr_contains(named);
            assert!(!ran.stderr.contains("PRIVATE"), "{}", ran.stderr);
        }
    }
}

#[test]
fn only_check_refuses_a_certificate_that_is_not_valid_now() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let expired = fixture.authority.issue("expired", "IP:127.0.0.1", -1);
    check_warning(&fixture, &expired, "expired on");
    let later = fixture.authority.issue_for_later("later");
    let reason = "is not valid before Wed, 01 Jan 2098";
    check_warning(&fixture, &later, reason);
}

/// Checks that `--check` refuses a certificate, and that a server warns at its start and at each
/// reload.
fn check_warning(fixture: &Fixture, issued: &Issued, reason: &str) {
    let files = ["--tls-cert", &issued.certificate, "--tls-key", &issued.key];
    let mut check = serve(&["serve", "--check", "--listen", "127.0.0.1:0", "--store"]);
    check.arg(fixture.corpus.store()).args(files);
    let ran = run(&mut check).expect(1).stderr_contains(reason);
    ran.stderr_contains(&issued.certificate);

    // A server with other certificates and plain listeners must not stay down after a restart.
    let server = fixture.serve(&files);
    let warning = "serving with the certificate";
    let count = || server.stderr().matches(warning).count();
    wait_until("the server warns", || count() == 1);
    assert!(server.stderr().contains(&issued.certificate));
    assert!(server.stderr().contains(reason), "{}", server.stderr());
    server.signal(Signal::HUP);
    wait_until("the server reloads", || {
        server
            .stderr()
            .contains("reloaded certificates, keys and logins")
    });
    wait_until("the server warns again", || count() == 2);
    server.stop();
}

#[test]
fn certificates_without_keys_are_a_usage_error() {
    for args in [
        &["--tls-cert", "a"][..],
        &["--tls-cert=a", "--tls-key=b", "--tls-key=c"],
    ] {
        let ran = run(serve(&["serve"]).args(args)).expect(2);
        ran.stderr_contains("--tls-cert and --tls-key in pairs");
    }
    for (flag, part) in [
        ("--tls-key", "in pairs"),
        ("--tls-client-ca", "the server has no TLS"),
    ] {
        let ran = run(&mut serve(&["serve", flag, "a"])).expect(2);
        ran.stderr_contains("--tls-cert").stderr_contains(part);
    }
}

#[test]
fn key_that_other_users_can_read_causes_a_warning() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let key = &fixture.server.key;
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    let stderr = fixture.serve(&[]).stop();
    assert!(
        stderr.contains(key) && stderr.contains("chmod 600"),
        "{stderr}"
    );
}
