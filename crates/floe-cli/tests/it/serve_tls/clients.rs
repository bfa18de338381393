//! Clients of a server with TLS: every Nix, floe, curl and openssl.

use std::fs;
use std::process::Command;

use floe_testkit::{Issued, nixes, run, tree};

use super::{Fixture, port};
use crate::serve_options::serve;
use crate::server_process::ServerProcess;
use crate::support::floe;

#[test]
fn nix_and_floe_install_over_tls_from_private_authority() {
    let Some(fixture) = Fixture::new("curl") else {
        return;
    };
    let (corpus, scratch) = (&fixture.corpus, &fixture.scratch);
    let server = fixture.serve(&[]);
    assert!(server.url().starts_with("https://"), "{}", server.url());
    let nixes = nixes();
    for (number, nix) in nixes.iter().enumerate() {
        for trusted in [false, true] {
            let root = scratch.join(&format!("nix-{number}-{trusted}"));
            let keys = format!("trusted-public-keys = {}\n", corpus.key);
            let args = ["copy", "--from", &server.url(), &corpus.root, "--to"];
            let mut command = nix.command("nix", args);
            command.env("NIX_CONFIG", keys).arg(&root);
            if trusted {
                command.env("NIX_SSL_CERT_FILE", fixture.authority.certificate());
                run(&mut command).expect(0);
                nix.verify(&root, corpus.paths.len());
            } else {
                // Nix asks again after errors of TLS, so it gets one attempt.
                let ran = run(command.args(["--option", "download-attempts", "1"]));
                assert_ne!(ran.code, Some(0), "{}: {}", nix.version, ran.stderr);
                assert!(ran.stderr.contains("certificate"), "{}", ran.stderr);
            }
        }
    }
    let root = scratch.join("floe");
    let mut command = floe(["install", "--from", &server.url(), "--root"]);
    command
        .arg(&root)
        .env("NIX_SSL_CERT_FILE", fixture.authority.certificate());
    run(command.args(["--trusted-public-keys", &corpus.key, &corpus.root])).expect(0);
    assert!(tree(&root) == tree(&corpus.store()), "the trees differ");
    server.stop();
}

#[test]
fn curl_gets_the_same_bytes_with_each_version_and_range() {
    let Some(fixture) = Fixture::new("curl") else {
        return;
    };
    let server = fixture.serve(&["--access-log", "-"]);
    let narinfo = fixture.narinfo(&server);
    let url = fixture.curl(&[&narinfo]).expect(0).stdout;
    let url = url
        .lines()
        .find_map(|line| line.strip_prefix("URL: "))
        .unwrap()
        .to_owned();
    let nar = format!("{}/{url}", server.url());
    let file = fixture.scratch.join("body").display().to_string();
    let plain = ServerProcess::start(fixture.corpus.store(), &[]);
    let expected = plain.get(&format!("/{url}")).body;
    plain.stop();
    assert!(
        expected.len() > 200_000,
        "{} bytes fill no record",
        expected.len()
    );
    for version in [&["--tlsv1.2", "--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let mut args = vec![
            "--output",
            &file,
            "--write-out",
            "%{http_version} %{ssl_verify_result}",
        ];
        args.extend(version);
        let ran = fixture.curl(&[&args[..], &[&nar]].concat()).expect(0);
        assert_eq!(ran.stdout, "1.1 0");
        assert!(
            fs::read(&file).unwrap() == expected,
            "{version:?}: another NAR"
        );
        for (range, bytes) in [("0-0", 0..1), ("70000-170000", 70_000..170_001)] {
            fixture
                .curl(&[&args[..], &["--range", range, &nar]].concat())
                .expect(0);
            assert!(
                fs::read(&file).unwrap() == expected[bytes],
                "{version:?} {range}"
            );
        }
    }
    // A client that reads slowly makes the server keep what the socket does not take.
    let slow = ["--limit-rate", "400k", "--output", &file, &nar];
    fixture.curl(&slow).expect(0);
    assert!(
        fs::read(&file).unwrap() == expected,
        "slow client: another NAR"
    );
    // One connection, many requests.
    let (narinfo, out) = (narinfo.as_str(), ["--output", "/dev/null"]);
    let mut args = vec!["--write-out", "%{num_connects} %{http_code}\n"];
    (0..20).for_each(|_| args.extend([narinfo, out[0], out[1]]));
    let counts = fixture.curl(&args).expect(0).stdout;
    assert_eq!(counts, format!("1 200\n{}", "0 200\n".repeat(19)));
    server.stop();
}

#[test]
fn client_gets_the_certificate_for_its_name() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let [a, b] = ["a", "b"].map(|name| {
        fixture
            .authority
            .issue(name, &format!("DNS:{name}.test"), 2)
    });
    let server = fixture.serve(&[
        "--tls-cert",
        &a.certificate,
        "--tls-key",
        &a.key,
        "--tls-cert",
        &b.certificate,
        "--tls-key",
        &b.key,
    ]);
    let subject = |name: &str| {
        let mut command = Command::new(&fixture.openssl);
        command.args([
            "s_client",
            "-connect",
            &format!("127.0.0.1:{}", port(&server)),
        ]);
        match name {
            "" => command.arg("-noservername"),
            name => command.args(["-servername", name]),
        };
        let ran = run(command.args(["-CAfile", &fixture.authority.certificate()]));
        assert!(
            ran.stdout.contains("Verify return code: 0"),
            "{}",
            ran.stdout
        );
        let line = ran
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("subject="));
        line.unwrap().trim().to_owned()
    };
    for (name, expected) in [
        ("a.test", "CN = floe a"),
        ("b.test", "CN = floe b"),
        ("floe.test", "CN = floe server"),
        ("other.test", "CN = floe server"),
        ("", "CN = floe server"),
    ] {
        assert_eq!(subject(name), expected, "{name}");
    }
    server.stop();
}

#[test]
fn unix_socket_stays_without_tls() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let socket = fixture.scratch.join("socket").display().to_string();
    let server = fixture.serve(&["--socket", &socket]);
    let ran = fixture.curl(&["--unix-socket", &socket, "http://floe/nix-cache-info"]);
    assert!(ran.expect(0).stdout.contains("StoreDir: /nix/store"));
    server.stop();
}

#[test]
fn keys_of_harmonia_and_floe_in_a_file_turn_tls_on() {
    let Some(fixture) = Fixture::new("jq") else {
        return;
    };
    let config = fixture.scratch.join("serve.toml");
    let Issued { certificate, key } = &fixture.server;
    for (certificate_key, key_key) in [("tls_cert_path", "tls_key_path"), ("tls_cert", "tls_key")] {
        let text = format!("{certificate_key} = '{certificate}'\n{key_key} = '{key}'\n");
        fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let server = ServerProcess::start(fixture.corpus.store(), &["--config", &config]);
        let url = format!("{}/nix-cache-info", server.url());
        let ran = fixture.curl(&[&url]).expect(0);
        assert!(ran.stdout.contains("StoreDir: "), "{}", ran.stdout);
        server.stop();
    }
    let mut command = serve(&["nix-serve", "--host", "127.0.0.1", "--port=0", "--store"]);
    command
        .arg(fixture.corpus.store())
        .args(["--ssl-cert", certificate, "--ssl-key", key]);
    let server = ServerProcess::spawn(&mut command);
    let url = format!("{}/nix-cache-info", server.url());
    let ran = fixture.curl(&[&url]).expect(0);
    assert!(ran.stdout.contains("StoreDir: "), "{}", ran.stdout);
    server.stop();
}
