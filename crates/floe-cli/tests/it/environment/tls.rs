//! Caches over TLS, with HTTP/1.1 and HTTP/2.

use std::fs;
use std::process::Command;

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{corpus, nginx, nixes, run, scratch, tree};

use crate::support::floe;
use floe_testkit::{CERTIFICATE_OF_VERSION_1, create_certificates, find_tool};

#[test]
fn http1_and_http2_work_over_tls_with_trusted_authority_only() {
    // This corpus has several NARs that exceed the flow-control window of a stream.
    let Some(corpus) = corpus("curl") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    let certificates = create_certificates(&openssl, scratch.path());
    let name = |file: &str| scratch.join(file).display().to_string();

    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl http2; listen 127.0.0.1:PORT2 ssl; {}",
        certificates.server
    );
    let Some(server) = nginx(&corpus.dir, &extra) else {
        return;
    };
    let [both, old] = [1, 2].map(|number| server.port(number));
    let install = |port: u16, certificates: Option<&str>| {
        let from = format!("https://127.0.0.1:{port}/cache-none");
        let mut command = floe(["install", "--jobs", "1", "--from", &from, "--root"]);
        command
            .env_remove("NIX_SSL_CERT_FILE")
            .env_remove("SSL_CERT_FILE");
        command.envs(certificates.map(|file| ("SSL_CERT_FILE", file)));
        command.arg(scratch.join(&port.to_string()));
        run(command.args(["--trusted-public-keys", &corpus.key, &corpus.root]))
    };
    install(both, None)
        .expect(4)
        .stderr_contains("nix-cache-info")
        .stderr_contains("no trusted authority has issued it");
    install(both, Some(&name("absent.pem")))
        .expect(4)
        .stderr_contains("absent.pem");
    let empty = name("empty.pem");
    fs::write(&empty, "").unwrap();
    install(both, Some(&empty))
        .expect(4)
        .stderr_contains("empty.pem: it has none in PEM");
    assert_eq!(server.log(), "", "the server received a request");
    // Over HTTP/2, a request for nix-cache-info opens each connection of the bodies. A slow machine
    // needs fewer of them.
    for (port, protocol, openings_max) in [(both, "HTTP/2.0", 6), (old, "HTTP/1.1", 0)] {
        let seen = server.log().lines().count();
        install(port, Some(&certificates.authority)).expect(0);
        let log: Vec<String> = server.log().lines().skip(seen).map(str::to_owned).collect();
        // One request for nix-cache-info, then a narinfo and a NAR for each path.
        let is_opening = |line: &&String| line.contains("/nix-cache-info ");
        let openings = log.iter().filter(is_opening).count();
        assert!((1..=1 + openings_max).contains(&openings), "{log:?}");
        assert_eq!(log.len() - openings, 2 * corpus.paths.len(), "{log:?}");
        let good = format!("{protocol}\" 200");
        assert!(
            log.iter().all(|line| line.contains(&good)),
            "not {good}: {log:?}"
        );
        let root = scratch.join(&port.to_string());
        assert!(
            tree(&root) == tree(&corpus.store()),
            "{protocol}: the trees differ"
        );
    }
}

#[test]
fn listed_leaf_certificate_is_trusted_for_its_own_names() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    // By default, openssl creates a certificate with CA:TRUE.
    let make = |name: &str, names: &str, more: &[&str]| {
        let subject = format!("/CN=floe {name}");
        let file = |end: &str| scratch.join(&format!("{name}.{end}")).display().to_string();
        let mut command = Command::new(&openssl);
        command.args(["req", "-x509", "-nodes", "-days", "2", "-subj", &subject]);
        command.args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        command.args(["-addext", names, "-keyout", &file("key")]);
        run(command.args(["-out", &file("pem")]).args(more)).expect(0);
        [file("pem"), file("key")]
    };
    let address = "subjectAltName=IP:127.0.0.1";
    let authority = make("authority", address, &[]);
    let leaf = "basicConstraints=critical,CA:FALSE";
    let by_authority = [
        "-CA",
        &authority[0],
        "-CAkey",
        &authority[1],
        "-addext",
        leaf,
    ];
    let own = make("own", address, &[]);
    let other_name = make("other-name", "subjectAltName=DNS:floe.example", &[]);
    let certificates = make("certificates", address, &by_authority);
    let listens = |[certificate, key]: &[String; 2]| {
        let ssl = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
        let server = nginx(&corpus.dir, &format!("listen 127.0.0.1:PORT1 ssl; {ssl}"))?;
        let url = format!("https://127.0.0.1:{}/cache-zstd", server.port(1));
        Some((server, url))
    };
    let install = |url: &str, listed: &str| {
        let target = super::scratch();
        let mut command = floe(["install", "--from", url, "--root"]);
        command.arg(target.path()).arg("--trusted-public-keys");
        command.arg(&corpus.key).arg(&corpus.root);
        run(command.env("NIX_SSL_CERT_FILE", listed))
    };
    for pair in [&own, &certificates] {
        let Some((server, url)) = listens(pair) else {
            return;
        };
        install(&url, &other_name[0])
            .expect(4)
            .stderr_contains("no trusted authority has issued it");
        assert_eq!(server.log(), "", "the server received a request");
        install(&url, &pair[0]).expect(0);
        assert!(server.log().contains(".narinfo"), "{}", server.log());
        for nix in nixes() {
            let mut ask = nix.command("nix", ["path-info", "--store", &url]);
            ask.env("NIX_SSL_CERT_FILE", &pair[0]).arg(&corpus.root);
            run(&mut ask).expect(0);
        }
    }
    let Some((server, url)) = listens(&other_name) else {
        return;
    };
    install(&url, &other_name[0])
        .expect(4)
        .stderr_contains("not valid for name");
    assert_eq!(server.log(), "", "the server received a request");
}

#[test]
fn unreadable_certificate_file_affects_tls_only() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let server = FaultServer::start(&corpus.cache("zstd"));
    let absent = scratch.join("absent.pem");
    let install = |from: &[&str], name: &str| {
        let mut command = floe(["install"]);
        for from in from {
            command.args(["--from", from]);
        }
        command.args(["--trusted-public-keys", &corpus.key, "--root"]);
        command.arg(scratch.join(name)).arg(&corpus.root);
        run(command.env("NIX_SSL_CERT_FILE", &absent))
    };
    let ran = install(&[&server.url()], "http").expect(0);
    assert!(!ran.stderr.contains("absent.pem"), "{}", ran.stderr);
    assert_eq!(server.requests_for(".narinfo").len(), corpus.paths.len());
    let (directory, dead) = (corpus.file_url("zstd"), "https://127.0.0.1:1");
    install(&[&directory, dead], "directory").expect(0);
}

#[test]
fn client_certificate_opens_cache_that_demands_one() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let scratch = scratch();
    let certificates = create_certificates(&openssl, scratch.path());
    let extra = format!(
        "listen 127.0.0.1:PORT1 ssl http2; listen 127.0.0.1:PORT2 ssl; {} \
         ssl_client_certificate {}; ssl_verify_client on;",
        certificates.server, certificates.authority
    );
    let Some(server) = nginx(&corpus.dir, &extra) else {
        return;
    };
    let install = |port: u16, query: &str| {
        let url = format!("https://127.0.0.1:{port}/cache-zstd{query}");
        let target = super::scratch();
        let mut command = floe(["install", "--from", &url, "--root"]);
        command.arg(target.path()).arg("--trusted-public-keys");
        command.arg(&corpus.key).arg(&corpus.root);
        run(command.env("NIX_SSL_CERT_FILE", &certificates.authority))
    };
    let [certificate, key] = &certificates.client;
    let both = scratch.join("both.pem");
    let contents = [certificate, key].map(|file| std::fs::read(file).unwrap());
    std::fs::write(&both, contents.concat()).unwrap();
    for port in [1, 2].map(|number| server.port(number)) {
        install(port, "").expect(4);
        install(
            port,
            &format!("?tls-certificate={certificate}&tls-private-key={key}"),
        )
        .expect(0);
        install(port, &format!("?tls-certificate={}", both.display())).expect(0);
    }
    let port = server.port(1);
    let (absent, other) = (scratch.join("absent.pem"), scratch.join("server.key"));
    let (absent, other) = (absent.display(), other.display());
    let version_1 = scratch.join("version-1.pem").display().to_string();
    fs::write(&version_1, CERTIFICATE_OF_VERSION_1).unwrap();
    for (query, causes) in [
        (
            format!("tls-certificate={absent}&tls-private-key={key}"),
            ["absent.pem", "No such file"],
        ),
        (
            format!("tls-certificate={certificate}&tls-private-key={absent}"),
            ["absent.pem", "No such file"],
        ),
        (
            format!("tls-certificate={certificate}"),
            ["private key", "client.pem"],
        ),
        (
            format!("tls-certificate={key}"),
            ["client.key", "no certificate"],
        ),
        (
            format!("tls-certificate={certificate}&tls-private-key={other}"),
            ["private key", "server.key"],
        ),
        (
            format!("tls-certificate={version_1}&tls-private-key={key}"),
            ["client certificate", "its version of X.509 is not 3"],
        ),
    ] {
        let ran = install(port, &format!("?{query}")).expect(1);
        for cause in causes {
            assert!(ran.stderr.contains(cause), "{query}: {}", ran.stderr);
        }
    }
    install(port, &format!("?tls-private-key={key}"))
        .expect(2)
        .stderr_contains("needs tls-certificate");
}
