//! Real clients log in: every Nix, floe and curl, with netrc and with a token.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{Authority, Corpus, Nix, corpus, find_tool, nixes, run, scratch};

use super::{Logins, PASSWORD, add_token};
use crate::server_process::ServerProcess;
use crate::support::floe;

/// Creates a netrc file for the server.
fn netrc(dir: &Path, name: &str, password: &str) -> PathBuf {
    let file = dir.join(format!("netrc-{name}-{}", password.len()));
    let text = format!("machine 127.0.0.1 login {name} password {password}\n");
    fs::write(&file, text).unwrap();
    file
}

fn nix_copy(nix: &Nix, corpus: &Corpus, server: &ServerProcess, root: &Path) -> Command {
    let mut command = nix.command(
        "nix",
        ["copy", "--from", &server.url(), &corpus.root, "--to"],
    );
    command.arg(root);
    let settings = format!(
        "require-sigs = true\ntrusted-public-keys = {}\n",
        corpus.key
    );
    command.env("NIX_CONFIG", settings);
    command
}

/// Returns `floe install` of the corpus up to the option for the netrc file.
fn floe_install(corpus: &Corpus, server: &ServerProcess, root: &Path) -> Command {
    let mut command = floe(["install", "--from", &server.url(), "--root"]);
    command.arg(root).arg(&corpus.root);
    command.args(["--trusted-public-keys", &corpus.key]);
    command.args(["--option", "netrc-file"]);
    command
}

#[test]
fn nix_logs_in_with_netrc_and_fails_without() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in &nixes() {
        let scratch = scratch();
        let logins = Logins::new(&scratch);
        let server = logins.serve(&corpus, &[]);
        let copy = |netrc: &Path, root: &str| {
            let mut command = nix_copy(nix, &corpus, &server, &scratch.join(root));
            run(command.args(["--option", "netrc-file"]).arg(netrc))
        };
        let right = netrc(scratch.path(), "alice", PASSWORD);
        copy(&right, "password").expect(0);
        nix.verify(&scratch.join("password"), corpus.paths.len());
        let token = netrc(scratch.path(), "any", &logins.token);
        copy(&token, "token").expect(0);
        for file in [
            netrc(scratch.path(), "alice", "wrong"),
            netrc(scratch.path(), "carol", PASSWORD),
            PathBuf::from("/dev/null"),
        ] {
            let ran = copy(&file, "wrong");
            assert_ne!(ran.code, Some(0), "{}: {}", nix.version, file.display());
            // Nix 2.8 does not show the status.
            let is_shown = ["401", "does not appear to be a binary cache"];
            let is_clear = is_shown.iter().any(|part| ran.stderr.contains(part));
            assert!(is_clear, "{}: {}", nix.version, ran.stderr);
        }
        assert_eq!(server.stop(), "");
    }
}

#[test]
fn floe_logs_in_with_netrc_and_names_it_in_its_error() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let expired = add_token(&logins.file, &["late", "--scope", "metrics"]);
    let server = logins.serve(&corpus, &[]);
    let install = |netrc: &Path, root: &str| {
        let mut command = floe_install(&corpus, &server, &scratch.join(root));
        run(command.arg(netrc))
    };
    install(&netrc(scratch.path(), "alice", PASSWORD), "password").expect(0);
    install(&netrc(scratch.path(), "any", &logins.token), "token").expect(0);
    for (file, status) in [
        (netrc(scratch.path(), "alice", "wrong"), "401"),
        (PathBuf::from("/dev/null"), "401"),
        (netrc(scratch.path(), "x", &expired), "403"),
    ] {
        let ran = install(&file, "wrong").expect(4);
        let ran = ran.stderr_contains(status);
        assert!(!ran.stderr.contains("wrong\n"), "{}", ran.stderr);
    }
    let login = format!("http://alice:{PASSWORD}@");
    let url = server.url().replace("http://", &login);
    let ran = run(&mut floe(["info", "--from", &url, &corpus.root])).expect(0);
    assert!(!ran.stderr.contains(PASSWORD), "{}", ran.stderr);
}

#[test]
fn curl_logs_in_with_password_token_and_netrc() {
    if find_tool("curl", "curl").is_none() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let server = logins.serve(&corpus, &[]);
    let url = format!("{}/nix-cache-info", server.url());
    let status = |args: &[&str]| {
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        run(command.args(args).arg(&url)).expect(0).stdout
    };
    let file = netrc(scratch.path(), "alice", PASSWORD);
    let header = format!("Authorization: Bearer {}", logins.token);
    for args in [
        &["--user", &format!("alice:{PASSWORD}")][..],
        &["--user", &format!(":{}", logins.token)],
        &["--header", &header],
        &["--netrc-file", &file.display().to_string()],
        // curl sends the password only after a response with status 401.
        &["--anyauth", "--user", &format!("alice:{PASSWORD}")],
        &["--head", "--oauth2-bearer", &logins.token],
    ] {
        assert_eq!(status(args), "200", "{args:?}");
    }
    for args in [
        &[][..],
        &["--user", "alice:wrong"],
        &["--oauth2-bearer", PASSWORD],
        &["--digest", "--user", &format!("alice:{PASSWORD}")],
    ] {
        assert_eq!(status(args), "401", "{args:?}");
    }
}

#[test]
fn clients_log_in_over_tls_from_a_private_authority() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let authority = Authority::create(&openssl, scratch.path(), "authority");
    let issued = authority.issue("server", "IP:127.0.0.1", 2);
    let tls = ["--tls-cert", &issued.certificate, "--tls-key", &issued.key];
    let server = logins.serve(&corpus, &tls);
    assert!(server.url().starts_with("https://"), "{}", server.url());
    let right = netrc(scratch.path(), "alice", PASSWORD);
    let wrong = netrc(scratch.path(), "alice", "wrong");
    let certificate = authority.certificate();
    for (number, nix) in nixes().iter().enumerate() {
        let copy = |netrc: &Path, root: String| {
            let mut command = nix_copy(nix, &corpus, &server, &scratch.join(&root));
            command.env("NIX_SSL_CERT_FILE", &certificate);
            run(command.args(["--option", "netrc-file"]).arg(netrc))
        };
        copy(&right, format!("nix-{number}")).expect(0);
        assert_ne!(copy(&wrong, format!("no-{number}")).code, Some(0));
    }
    let install = |netrc: &Path, root: &str| {
        let mut command = floe_install(&corpus, &server, &scratch.join(root));
        run(command.arg(netrc).env("NIX_SSL_CERT_FILE", &certificate))
    };
    install(&right, "floe").expect(0);
    install(&wrong, "no").expect(4).stderr_contains("401");
    assert_eq!(server.stop(), "");
}
