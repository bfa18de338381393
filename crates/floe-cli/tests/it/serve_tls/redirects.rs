//! The redirect from plain HTTP to HTTPS.

use std::fs;

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{nixes, run, wait_until};

use super::{Fixture, port};
use crate::serve_logins::add_token;
use crate::server_process::ServerProcess;
use crate::support::floe;

/// Returns the address that redirects, without its scheme.
fn redirecting(server: &ServerProcess) -> String {
    let prefix = "redirecting to HTTPS on http://";
    wait_until("the address", || server.stderr().contains(prefix));
    let stderr = server.stderr();
    let line = stderr.lines().find_map(|line| line.strip_prefix(prefix));
    line.unwrap().to_owned()
}

#[test]
fn clients_are_sent_to_https() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let server = fixture.serve(&["--redirect-listen", "127.0.0.1:0"]);
    let address = redirecting(&server);
    // The host is that of the test client.
    let https = format!("https://floe:{}", port(&server));
    let mut client = Client::connect(&address);
    let narinfo = narinfo_of(&fixture.corpus.root);
    for target in [
        "/",
        "/nix-cache-info?a=b",
        &narinfo,
        "/metrics",
        "/%2e%2e/x",
    ] {
        let redirected = client.request("GET", target, "");
        assert_eq!(redirected.status, 308, "{target}");
        let location = format!("{https}{target}");
        assert_eq!(redirected.field("Location"), Some(&*location));
    }
    let put = client.request("PUT", &narinfo, "Content-Length: 0\r\n");
    assert_eq!(put.status, 405);
    // A name must not leave the URL.
    for host in ["evil.example/x", "a@b", "", "a b"] {
        let mut client = Client::connect(&address);
        client.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        let refused = client.read_response(false).unwrap();
        assert_eq!(
            (refused.status, refused.field("Location")),
            (400, None),
            "{host}"
        );
    }
    let named = Client::connect(&address).request("GET", "/x", "");
    assert_eq!(named.status, 308);
    let followed = fixture.curl(&["--location", &format!("http://{address}/nix-cache-info")]);
    assert!(followed.expect(0).stdout.starts_with("StoreDir:"));
    // Programs that know only the address without TLS reach the cache, too.
    for nix in nixes() {
        let root = fixture.scratch.join(&format!("root-{}", nix.version));
        let from = format!("http://{address}");
        let mut copy = nix.command("nix", ["copy", "--from", &from, "--to"]);
        copy.arg(&root).arg(&fixture.corpus.root);
        copy.args(["--option", "trusted-public-keys", &fixture.corpus.key]);
        copy.env("NIX_SSL_CERT_FILE", fixture.authority.certificate());
        run(&mut copy).expect(0);
        nix.verify(&root, fixture.corpus.paths.len());
    }
    let mut install = floe(["install", "--from", &format!("http://{address}"), "--root"]);
    install.arg(fixture.scratch.join("floe"));
    install.args(["--trusted-public-keys", &fixture.corpus.key]);
    install.env("NIX_SSL_CERT_FILE", fixture.authority.certificate());
    run(install.arg(&fixture.corpus.root)).expect(0);
    server.stop();
}

/// The redirect does not tell who may read, and asks for no login in the clear.
#[test]
fn redirects_need_no_login() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let logins = fixture.scratch.join("logins");
    add_token(&logins, &["ci"]);
    let logins = logins.display().to_string();
    let server = fixture.serve(&["--auth-file", &logins, "--redirect-listen", "127.0.0.1:0"]);
    let mut client = Client::connect(&redirecting(&server));
    let redirected = client.request("GET", "/nix-cache-info", "");
    assert_eq!(redirected.status, 308);
    assert_eq!(redirected.field("WWW-Authenticate"), None);
    let metrics = fixture.curl(&["-o", "/dev/null", "-w", "%{http_code}", &server.url()]);
    assert_eq!(metrics.expect(0).stdout, "401");
    server.stop();
}

#[test]
fn redirects_need_a_certificate() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let store = fixture.corpus.store();
    let args = [
        "serve",
        "--check",
        "--redirect-listen",
        "127.0.0.1:0",
        "--store",
    ];
    let refused = run(floe(args).arg(&store)).expect(2);
    refused.stderr_contains("cannot redirect to HTTPS: the server has no certificate");
    let file = fixture.scratch.join("serve.toml");
    let text = format!(
        "redirect_listen = '127.0.0.1:0'\nlisten = '127.0.0.1:0'\ntls_cert = '{}'\n\
         tls_key = '{}'\n",
        fixture.server.certificate, fixture.server.key
    );
    fs::write(&file, text).unwrap();
    let mut check = floe(["serve", "--check", "--config"]);
    let checked = run(check.arg(&file).arg("--store").arg(&store)).expect(0);
    assert!(checked.stdout.contains("redirect-listen http://127.0.0.1:"));
}
