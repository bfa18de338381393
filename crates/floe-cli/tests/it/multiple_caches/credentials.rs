//! Credentials for caches: netrc files, including invalid ones, and logins in URLs.

use std::fs;
use std::path::{Path, PathBuf};

use floe_cache::{Network, NetworkOptions};
use floe_copy::{SourceOrder, Sources, resolve_store_uri};
use floe_testkit::fault_server::{Fault, FaultServer, RecordedRequest};
use floe_testkit::{Scratch, nginx, run, scratch};
use floe_transfer::{Cancel, Error, PathSpec, Session, UriContext};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;
use floe_testkit::create_certificates;
use floe_testkit::find_tool;

fn open(netrc: &[PathBuf], url: &str) -> Result<(Sources, Session), Error> {
    let options = NetworkOptions {
        netrc: netrc.to_vec(),
        ..NetworkOptions::default()
    };
    let store_config = resolve_store_uri(url, &UriContext::default()).unwrap();
    let session = Session::default().with_options::<Network>(options);
    Ok((
        Sources::open(&[store_config], SourceOrder::AsListed, &session)?,
        session,
    ))
}

/// Creates a netrc file.
fn netrc(scratch: &Scratch, text: &[u8]) -> PathBuf {
    let file = scratch.join("netrc");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn credentials_are_sent_to_their_host_only() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (scratch, server) = (scratch(), FaultServer::start(&cache.cache));
    let elsewhere = FaultServer::start(&cache.cache);
    server.require_authorization(USER_PASS);
    let absent = scratch.join("not-there");
    let other = netrc(
        &scratch,
        b"machine other.example.org login user password pass\n",
    );
    let error = open(&[absent.clone(), other], &server.url()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("401") && error.contains("netrc"), "{error}");
    let own = netrc(&scratch, b"machine 127.0.0.1 login user password pass\n");
    let (sources, _session) = open(&[absent, own], &server.url()).unwrap();
    let source = sources.list.first().unwrap();
    let part = cache.path("libc6").hash_part().to_owned();
    assert!(
        source
            .query_path_info(&PathSpec::HashPart(part), &Cancel::default())
            .unwrap()
            .is_some()
    );

    // A redirect to another host carries no credentials.
    let narinfo = format!("{part}.narinfo");
    let other = elsewhere.url().replace("127.0.0.1", "localhost");
    server.fail(&narinfo, Fault::Redirect(format!("{other}/{narinfo}")));
    assert!(
        source
            .query_path_info(&PathSpec::HashPart(part), &Cancel::default())
            .unwrap()
            .is_some()
    );
    let requests = elsewhere.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].fields.get("authorization"), None);
}

#[test]
fn redirect_target_receives_only_its_own_credentials() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let scratch = scratch();
    let (server, elsewhere) = (
        FaultServer::start(&cache.cache),
        FaultServer::start(&cache.cache),
    );
    elsewhere.require_authorization(USER_PASS);
    let file = "nix-cache-info";
    let to =
        |host: &str, path: &str| Fault::Redirect(elsewhere.url().replace("127.0.0.1", host) + path);
    let own = netrc(&scratch, b"machine 127.0.0.1 login user password pass");
    let authorization_after_redirect = |netrc: &PathBuf, base: &str, fault: Fault| {
        server.clear_faults();
        server.fail(file, fault);
        let before = elsewhere.requests().len();
        let opened = open(std::slice::from_ref(netrc), base);
        let requests = elsewhere.requests();
        assert_eq!(requests.len(), before + 1);
        let authorization = requests[before].fields.get("authorization").cloned();
        assert_eq!(opened.is_ok(), authorization.as_deref() == Some(USER_PASS));
        authorization
    };
    let (url, path) = (server.url(), format!("/{file}"));
    // The same host on another port.
    let authorization = authorization_after_redirect(&own, &url, to("127.0.0.1", &path));
    assert_eq!(authorization.as_deref(), Some(USER_PASS));
    // A login in the URL applies to that port only. It may consist of just a user name.
    let absent = scratch.join("not-there");
    let with = |login: &str| url.replace("http://", &format!("http://{login}@"));
    let authorization =
        authorization_after_redirect(&absent, &with("user:pass"), to("127.0.0.1", &path));
    assert_eq!(authorization, None);
    let first = server.requests().pop().unwrap();
    assert_eq!(first.fields["authorization"], USER_PASS);
    // Another host, which the netrc file lists with other credentials.
    let text = b"machine localhost login user password pass\nmachine 127.0.0.1 login a password b";
    let both = netrc(&scratch, text);
    let authorization = authorization_after_redirect(&both, &url, to("localhost", &path));
    assert_eq!(authorization.as_deref(), Some(USER_PASS));
    assert_ne!(
        server.requests().pop().unwrap().fields["authorization"],
        USER_PASS
    );

    server.clear_faults();
    server.fail(file, Fault::Redirect("ftp://example.org/x".into()));
    let error = open(&[own], &url).unwrap_err().to_string();
    assert!(error.contains("ftp://example.org/x"), "{error}");
}

#[test]
fn nar_over_plain_http_gets_no_credentials_from_https_cache() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    let (scratch, plain) = (scratch(), FaultServer::start(&cache.cache));
    // libonig5 is prefetched whole, libc6 is streamed.
    let paths = ["libonig5", "libc6"].map(|name| cache.path(name));
    for path in &paths {
        cache.edit(path, |narinfo| {
            narinfo.url = format!("{}/{}", plain.url(), narinfo.url);
        });
    }
    let certificates = create_certificates(&openssl, scratch.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl; {}", certificates.server);
    let Some(secure) = nginx(&cache.cache, &extra) else {
        return;
    };
    let own = netrc(&scratch, b"machine 127.0.0.1 login user password pass\n");
    let fetch = |url: &str, name: &str| {
        let mut command = floe(["install", "--from", url, "--option", "netrc-file"]);
        command
            .arg(&own)
            .arg("--root")
            .arg(cache.scratch.join(name));
        command.args(["--trusted-public-keys", &cache.corpus.key]);
        command.args(["--option", "ssl-cert-file", &certificates.authority]);
        run(command.arg(&cache.corpus.root)).expect(0);
    };
    fetch(&format!("https://127.0.0.1:{}", secure.port(1)), "secure");
    let requests = plain.requests();
    assert_eq!(requests.len(), paths.len());
    let has_no_credentials =
        |request: &RecordedRequest| !request.fields.contains_key("authorization");
    assert!(
        requests.iter().all(has_no_credentials),
        "credentials were sent over plain HTTP"
    );
    // A cache on plain HTTP does receive the credentials.
    fetch(&plain.url(), "plain");
    let requests = plain.requests().split_off(paths.len());
    assert!(requests.len() > paths.len() && !requests.iter().any(has_no_credentials));
}

#[test]
fn url_login_applies_to_absolute_nar_url_on_same_host() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    server.require_authorization(USER_PASS);
    let path = cache.path("libonig5");
    cache.edit(&path, |narinfo| {
        narinfo.url = format!("{}/{}", server.url(), narinfo.url);
    });
    let url = server.url().replace("http://", "http://user:pass@");
    let ran = cache.install(&url).expect(0);
    assert!(!ran.stderr.contains("user:pass"), "{}", ran.stderr);
}

#[test]
fn narinfo_disk_cache_contains_no_password() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    server.require_authorization(USER_PASS);
    let url = server.url().replace("http://", "http://user:pass@");
    let home = cache.scratch.join("home");
    let mut command = floe(["install", "--from", &url, "--root"]);
    command
        .arg(cache.scratch.join("store"))
        .arg(&cache.corpus.root);
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    run(command.env("XDG_CACHE_HOME", &home)).expect(0);
    let mut files = 0;
    for entry in fs::read_dir(home.join("floe")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
        assert!(!has(b"user:pass"));
        files += usize::from(has(server.url().as_bytes()));
    }
    assert!(files > 0, "no file of the disk cache contains the URL");
}

/// Installs with a netrc file, from an HTTP cache and from a directory that contains all paths.
fn install(cache: &FaultyCache, server: &FaultServer, netrc: &Path, name: &str) -> String {
    let root = cache.scratch.join(name);
    let from = format!("file://{}", cache.corpus.cache("zstd").display());
    let mut command = floe(["install", "--from", &from, "--from", &server.url()]);
    command.args(["--trusted-public-keys", &cache.corpus.key, "--option"]);
    command.arg("netrc-file").arg(netrc);
    command.arg("--root").arg(&root).arg(&cache.corpus.root);
    let ran = run(&mut command).expect(0);
    assert_verified(&root, cache.corpus.paths.len());
    ran.stderr
}

#[test]
fn invalid_netrc_is_reported_and_ignored() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (scratch, server) = (scratch(), FaultServer::start(&cache.cache));
    let broken = netrc(
        &scratch,
        b"machine 127.0.0.1 login user password \"secret\n",
    );
    // Not even root can read a directory as a file.
    let unreadable = scratch.join("directory");
    fs::create_dir(&unreadable).unwrap();
    for (file, reason) in [(&broken, "line 1: quoted word"), (&unreadable, "directory")] {
        let name = file.file_name().unwrap().to_str().unwrap();
        let stderr = install(&cache, &server, file, &format!("store-{name}"));
        assert!(stderr.contains("ignoring netrc file"), "{stderr}");
        assert!(stderr.contains(&*file.display().to_string()), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
    assert_eq!(server.requests_for("nix-cache-info").len(), 2);
}

#[test]
fn netrc_accepts_every_form_that_curl_reads() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (scratch, server) = (scratch(), FaultServer::start(&cache.cache));
    server.require_authorization(USER_PASS);
    for text in [
        &b"machine 127.0.0.1 login user password pass # mine"[..],
        b"MACHINE 127.0.0.1 port 80 LOGIN user PASSWORD pass",
        b"hello \xff\nmachine 127.0.0.1 # \xfc\nlogin user password pass oops",
    ] {
        let file = netrc(&scratch, text);
        let opened = open(&[file], &server.url());
        assert!(opened.is_ok(), "{}: {opened:?}", text.escape_ascii());
    }
}

/// `Basic` credentials of `user:pass` in Base64.
const USER_PASS: &str = "Basic dXNlcjpwYXNz";
