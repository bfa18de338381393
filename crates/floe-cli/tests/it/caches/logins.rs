//! Credentials for caches: netrc files, including invalid ones, and logins in URLs.

use std::fs;
use std::path::{Path, PathBuf};

use floe_engine::{Cancel, Error, NetworkOptions, SourceOrder, Sources, StoreUri};

use crate::environments::tls::certify;
use crate::environments::tool;
use crate::faulty::{Faulty, assert_verified, faulty};
use crate::server::{Fault, Hit, Server};
use crate::support::{Scratch, floe, nginx, run, scratch};

fn open(netrc: &[PathBuf], url: &str) -> Result<Sources, Error> {
    let options = NetworkOptions {
        netrc: netrc.to_vec(),
        ..NetworkOptions::default()
    };
    let location = StoreUri::parse(url, None, None).unwrap();
    Sources::open(
        &[location],
        SourceOrder::AsListed,
        &options,
        &Cancel::default(),
    )
}

/// Creates a netrc file.
fn netrc(scratch: &Scratch, text: &[u8]) -> PathBuf {
    let file = scratch.join("netrc");
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_login_goes_to_its_host_and_nowhere_else() {
    let Some(cache) = faulty("zstd") else { return };
    let (scratch, server) = (scratch(), Server::start(&cache.cache));
    let elsewhere = Server::start(&cache.cache);
    server.ask_for(USER_PASS);
    let absent = scratch.join("not-there");
    let other = netrc(
        &scratch,
        b"machine other.example.org login user password pass\n",
    );
    let error = open(&[absent.clone(), other], &server.url()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("401") && error.contains("netrc"), "{error}");
    let own = netrc(&scratch, b"machine 127.0.0.1 login user password pass\n");
    let sources = open(&[absent, own], &server.url()).unwrap();
    let source = sources.iter().next().unwrap();
    let part = cache.path("libc6").hash_part().to_owned();
    assert!(
        source
            .query_path_info(&part, &Cancel::default())
            .unwrap()
            .is_some()
    );

    // A redirect to another host carries no credentials.
    let narinfo = format!("{part}.narinfo");
    let other = elsewhere.url().replace("127.0.0.1", "localhost");
    server.fail(&narinfo, Fault::Redirect(format!("{other}/{narinfo}")));
    assert!(
        source
            .query_path_info(&part, &Cancel::default())
            .unwrap()
            .is_some()
    );
    let hits = elsewhere.hits();
    assert_eq!(hits.len(), 1);
    assert_eq!(hits[0].fields.get("authorization"), None);
}

#[test]
fn whoever_is_sent_on_says_to_each_host_what_is_meant_for_it() {
    let Some(cache) = faulty("zstd") else { return };
    let scratch = scratch();
    let (server, elsewhere) = (Server::start(&cache.cache), Server::start(&cache.cache));
    elsewhere.ask_for(USER_PASS);
    let file = "nix-cache-info";
    let to =
        |host: &str, path: &str| Fault::Redirect(elsewhere.url().replace("127.0.0.1", host) + path);
    let own = netrc(&scratch, b"machine 127.0.0.1 login user password pass");
    let seen = |netrc: &PathBuf, base: &str, fault: Fault| {
        server.heal();
        server.fail(file, fault);
        let before = elsewhere.hits().len();
        let opened = open(std::slice::from_ref(netrc), base);
        let hits = elsewhere.hits();
        assert_eq!(hits.len(), before + 1);
        let said = hits[before].fields.get("authorization").cloned();
        assert_eq!(opened.is_ok(), said.as_deref() == Some(USER_PASS));
        said
    };
    let (url, path) = (server.url(), format!("/{file}"));
    // The same host on another port.
    let said = seen(&own, &url, to("127.0.0.1", &path));
    assert_eq!(said.as_deref(), Some(USER_PASS));
    // A login in the URL applies to that port only. It may consist of just a user name.
    let absent = scratch.join("not-there");
    let with = |login: &str| url.replace("http://", &format!("http://{login}@"));
    let said = seen(&absent, &with("user:pass"), to("127.0.0.1", &path));
    assert_eq!(said, None);
    let first = server.hits().pop().unwrap();
    assert_eq!(first.fields["authorization"], USER_PASS);
    // Another host, which the netrc file lists with other credentials.
    let text = b"machine localhost login user password pass\nmachine 127.0.0.1 login a password b";
    let both = netrc(&scratch, text);
    let said = seen(&both, &url, to("localhost", &path));
    assert_eq!(said.as_deref(), Some(USER_PASS));
    assert_ne!(
        server.hits().pop().unwrap().fields["authorization"],
        USER_PASS
    );

    server.heal();
    server.fail(file, Fault::Redirect("ftp://example.org/x".into()));
    let error = open(&[own], &url).unwrap_err().to_string();
    assert!(error.contains("ftp://example.org/x"), "{error}");
}

#[test]
fn a_nar_that_a_cache_behind_tls_names_at_plain_http_is_asked_for_by_nobody() {
    let Some(cache) = faulty("zstd") else { return };
    let Some(openssl) = tool("openssl", "openssl") else {
        return;
    };
    let (scratch, plain) = (scratch(), Server::start(&cache.cache));
    // libonig5 is prefetched whole, libc6 is streamed.
    let paths = ["libonig5", "libc6"].map(|name| cache.path(name));
    for path in &paths {
        cache.edit(path, |narinfo| {
            narinfo.url = format!("{}/{}", plain.url(), narinfo.url);
        });
    }
    let certified = certify(&openssl, scratch.path());
    let extra = format!("listen 127.0.0.1:PORT1 ssl; {}", certified.server);
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
        command.args(["--option", "ssl-cert-file", &certified.authority]);
        run(command.arg(&cache.corpus.root)).expect(0);
    };
    fetch(&format!("https://127.0.0.1:{}", secure.port(1)), "secure");
    let hits = plain.hits();
    assert_eq!(hits.len(), paths.len());
    let says_nothing = |hit: &Hit| !hit.fields.contains_key("authorization");
    assert!(
        hits.iter().all(says_nothing),
        "credentials were sent over plain HTTP"
    );
    // A cache on plain HTTP does receive the credentials.
    fetch(&plain.url(), "plain");
    let hits = plain.hits().split_off(paths.len());
    assert!(hits.len() > paths.len() && !hits.iter().any(says_nothing));
}

#[test]
fn the_login_of_an_address_is_also_for_a_nar_that_the_cache_names_in_full() {
    let Some(cache) = faulty("zstd") else { return };
    let server = Server::start(&cache.cache);
    server.ask_for(USER_PASS);
    let path = cache.path("libonig5");
    cache.edit(&path, |narinfo| {
        narinfo.url = format!("{}/{}", server.url(), narinfo.url);
    });
    let url = server.url().replace("http://", "http://user:pass@");
    let ran = cache.install(&url).expect(0);
    assert!(!ran.stderr.contains("user:pass"), "{}", ran.stderr);
}

#[test]
fn what_is_remembered_of_a_cache_holds_no_password() {
    let Some(cache) = faulty("zstd") else { return };
    let server = Server::start(&cache.cache);
    server.ask_for(USER_PASS);
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
fn install(cache: &Faulty, server: &Server, netrc: &Path, name: &str) -> String {
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
fn a_netrc_that_cannot_be_used_is_named_and_gone_without() {
    let Some(cache) = faulty("zstd") else { return };
    let (scratch, server) = (scratch(), Server::start(&cache.cache));
    let broken = netrc(
        &scratch,
        b"machine 127.0.0.1 login user password \"secret\n",
    );
    // Not even root can read a directory as a file.
    let unreadable = scratch.join("directory");
    fs::create_dir(&unreadable).unwrap();
    for (file, reason) in [(&broken, "line 1: a quotation"), (&unreadable, "directory")] {
        let name = file.file_name().unwrap().to_str().unwrap();
        let stderr = install(&cache, &server, file, &format!("store-{name}"));
        assert!(stderr.contains("going on without logins"), "{stderr}");
        assert!(stderr.contains(&*file.display().to_string()), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
        assert!(!stderr.contains("secret"), "{stderr}");
    }
    assert_eq!(server.hits_on("nix-cache-info").len(), 2);
}

#[test]
fn a_login_is_found_in_whatever_form_curl_reads() {
    let Some(cache) = faulty("zstd") else { return };
    let (scratch, server) = (scratch(), Server::start(&cache.cache));
    server.ask_for(USER_PASS);
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
