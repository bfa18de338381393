//! Pushes to caches that are damaged, are none, or lie behind a proxy: what is missing is pushed
//! again, and nothing else.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;

use floe_testkit::{CommandOutput, Corpus, S3Server, corpus, nginx, run, s3_server, scratch};

use super::faults::check_bucket;
use super::{floe_with_keys, key, source_root};
use crate::support::floe;

fn push(server: &S3Server, to: &str, corpus: &Corpus, more: &[&str]) -> CommandOutput {
    let root = source_root(corpus);
    let mut command = floe_with_keys(server, &["push", "--json", "--to", to, "--root", &root]);
    run(command.args(more).arg(&corpus.root))
}

/// Returns the files of a directory with an extension.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == extension));
    files.sort();
    files
}

/// A way to damage a bucket, and whether only `--check` finds it.
type Damage = (&'static str, fn(&Path), bool);

const DAMAGES: [Damage; 5] = [
    (
        "NAR deleted",
        |bucket| fs::remove_file(nar(bucket)).unwrap(),
        false,
    ),
    ("NAR emptied", |bucket| truncate(&nar(bucket), 0), false),
    (
        "narinfo emptied",
        |bucket| truncate(&narinfo(bucket), 0),
        false,
    ),
    ("NAR cut off", |bucket| truncate(&nar(bucket), 10), true),
    (
        "narinfo replaced",
        |bucket| fs::write(narinfo(bucket), "<html>").unwrap(),
        true,
    ),
];

fn nar(bucket: &Path) -> PathBuf {
    files(&bucket.join("nar"), "zst").remove(0)
}

fn narinfo(bucket: &Path) -> PathBuf {
    files(bucket, "narinfo").remove(0)
}

fn truncate(file: &Path, len: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_len(len).unwrap();
}

#[test]
fn push_repairs_a_damaged_bucket_of_many_paths() {
    let Some(corpus) = corpus("curl") else { return };
    assert!(corpus.paths.len() >= 20, "the paths are not listed");
    for (damage, make, needs_check) in DAMAGES {
        // Each damage has its own bucket: a repaired one has more NARs than narinfos.
        let Some(server) = s3_server("team") else {
            return;
        };
        let (bucket, to) = (server.bucket("team"), server.uri("team"));
        push(&server, &to, &corpus, &[]).expect(0);
        make(&bucket);
        if needs_check {
            let output = push(&server, &to, &corpus, &[]).expect(0);
            assert_eq!(output.json()["copied"], 0, "{damage}");
        }
        let check: &[&str] = if needs_check { &["--check"] } else { &[] };
        let output = push(&server, &to, &corpus, check).expect(0);
        assert_eq!(output.json()["copied"], 1, "{damage}: {}", output.stderr);
        assert_eq!(check_bucket(&bucket), corpus.paths.len(), "{damage}");
        let output = push(&server, &to, &corpus, &["--check"]).expect(0);
        assert_eq!(output.json()["copied"], 0, "{damage}");
    }
}

/// Answers every request with 200 and a page, except perhaps that for nix-cache-info. Returns the
/// URL.
fn page_server(page: &'static str, info: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { continue };
            let mut request = [0; 4096];
            // The client may be gone.
            let _: Result<usize, _> = client.read(&mut request);
            let is_info = request.starts_with(b"GET /nix-cache-info");
            let body = info.filter(|_| is_info).unwrap_or(page);
            let len = body.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n");
            let _: Result<(), _> = client.write_all(format!("{head}{body}").as_bytes());
        }
    });
    url
}

#[test]
fn page_for_every_request_is_no_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let root = source_root(&corpus);
    for page in [
        "<!DOCTYPE html><title>Log in</title>",
        "{\"login\": true}",
        "",
    ] {
        let url = page_server(page, None);
        for command in ["push", "copy"] {
            let output = run(floe([command, "--to", &url, "--root", &root]).arg(&corpus.root));
            let output = output.expect(4).stderr_contains("nix-cache-info");
            assert!(!output.stderr.contains("pushed"), "{}", output.stderr);
            assert!(!output.stderr.contains("copied"), "{}", output.stderr);
        }
        let scratch = scratch();
        let mut install = floe(["install", "--no-check-sigs", "--from", &url, "--root"]);
        run(install.arg(scratch.join("root")).arg(&corpus.root))
            .expect(4)
            .stderr_contains("nix-cache-info");
    }
}

#[test]
fn pages_instead_of_narinfos_are_no_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let url = page_server("<html>log in</html>", Some("StoreDir: /nix/store\n"));
    let root = source_root(&corpus);
    let output = run(floe(["push", "--to", &url, "--root", &root]).arg(&corpus.root)).expect(4);
    assert!(!output.stderr.contains("pushed"), "{}", output.stderr);
    output.stderr_contains("answers each query with a web page");
}

/// A proxy may change every header that S3 does not demand to be signed.
#[test]
fn second_push_through_a_header_rewriting_proxy_sends_nothing() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let proxy = format!(
        "client_max_body_size 0; location / {{ proxy_pass {}; proxy_set_header Host $http_host; \
         proxy_set_header Accept-Encoding gzip; proxy_set_header Content-Type text/other; \
         proxy_set_header Cache-Control no-store; proxy_set_header If-None-Match \"\"; }}",
        server.endpoint()
    );
    let Some(proxy) = nginx(scratch.path(), &proxy) else {
        return;
    };
    let to = format!("s3://team?endpoint={}", proxy.url());
    let few = corpus.paths.iter().find(|path| path.contains("libc6"));
    for path in [few.unwrap(), &corpus.root] {
        let root = source_root(&corpus);
        let push = || {
            let args = ["push", "--json", "--to", &to, "--root", &root, path];
            run(&mut floe_with_keys(&server, &args)).expect(0).json()
        };
        assert_ne!(push()["copied"], 0);
        let puts = || {
            let log = proxy.log();
            let puts = log.lines().filter(|line| line.contains("\"PUT "));
            puts.filter(|line| !line.contains("/leases/")).count()
        };
        let before = puts();
        assert!(before > 0, "nothing was pushed through the proxy");
        assert_eq!(push()["copied"], 0);
        assert_eq!(puts(), before);
    }
    assert_eq!(check_bucket(&server.bucket("team")), corpus.paths.len());
}

#[test]
fn forbidden_is_an_error_and_not_absent() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    fs::write(scratch.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    let Some(server) = nginx(scratch.path(), "location ~ narinfo { return 403; }") else {
        return;
    };
    let root = source_root(&corpus);
    let output = run(floe(["push", "--to", &server.url(), "--root", &root]).arg(&corpus.root));
    output.expect(4).stderr_contains("403");
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &server.url(),
        "--root",
    ]);
    let output = run(install.arg(scratch.join("root")).arg(&corpus.root));
    output.expect(4).stderr_contains("403");
    // Another cache may have the path all the same.
    let other = corpus.file_url("zstd");
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &server.url(),
        "--from",
    ]);
    install.args([&other, "--root"]).arg(scratch.join("both"));
    run(install.arg(&corpus.root)).expect(0);
}

#[test]
fn unsigned_paths_in_a_cache_are_named() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, _) = key(&scratch);
    let root = source_root(&corpus);
    let push = |to: &str, more: &[&str]| {
        let to = format!("file://{}", scratch.join(to).display());
        let mut command = floe(["push", "--json", "--to", &to, "--root", &root]);
        run(command.args(more).arg(&corpus.root))
    };
    let count = corpus.paths.len();
    let unsigned = push("unsigned", &[]).expect(0);
    assert_eq!(unsigned.json()["unsigned"], count);
    let said = "without a signature, so clients refuse them";
    assert!(unsigned.stderr.contains(said), "{}", unsigned.stderr);
    let signed = push("signed", &["--secret-key-file", &file]).expect(0);
    assert_eq!(signed.json()["unsigned"], 0);
    assert!(!signed.stderr.contains(said), "{}", signed.stderr);
    for name in ["secret-key-file", "secretkey", "Secret-Key", "key"] {
        push(&format!("{name}?{name}={file}"), &[])
            .expect(2)
            .stderr_contains("secret-key=FILE");
        assert!(
            !scratch.join(name).exists(),
            "{name}: the cache was created"
        );
    }
}

/// A server decodes a path before it looks for `..`.
#[test]
fn encoded_dots_cannot_lead_out_of_a_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", scratch.path());
    let Some(server) = nginx(scratch.path(), "") else {
        return;
    };
    for file in files(&cache, "narinfo") {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some(("URL", _)) => "URL: nar/..%2f..%2fsecret\n".to_owned(),
            _ => format!("{line}\n"),
        });
        fs::write(&file, lines.collect::<String>()).unwrap();
    }
    let from = format!("{}/cache", server.url());
    let mut install = floe(["install", "--no-check-sigs", "--from", &from, "--root"]);
    let output = run(install.arg(scratch.join("root")).arg(&corpus.root));
    let output = output.expect(3).stderr_contains("leads out of the cache");
    let log = server.log();
    assert!(
        log.contains("narinfo") && !log.contains("secret"),
        "{}",
        output.stderr
    );
}

/// A narinfo must not make floe send the user's signature or login to other places of the server.
#[test]
fn narinfo_cannot_lead_out_of_its_cache() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let cache = corpus.cache("zstd");
    let prefix = server.bucket("team").join("sub");
    let name = files(&cache, "narinfo").remove(0);
    let text = fs::read_to_string(&name).unwrap();
    let path = text
        .lines()
        .find_map(|line| line.strip_prefix("StorePath: "));
    for url in ["../../other/private", "../nar/secret"] {
        fs::create_dir_all(&prefix).unwrap();
        fs::copy(cache.join("nix-cache-info"), prefix.join("nix-cache-info")).unwrap();
        let lines = text.lines().map(|line| match line.split_once(": ") {
            Some(("URL", _)) => format!("URL: {url}\n"),
            Some(("References", _)) => "References: \n".into(),
            _ => format!("{line}\n"),
        });
        let file = prefix.join(name.file_name().unwrap());
        fs::write(&file, lines.collect::<String>()).unwrap();
        let from = format!("s3://team/sub?endpoint={}", server.endpoint());
        let before = server.request_count();
        let args = ["install", "--no-check-sigs", "--from", &from, "--root"];
        let mut install = floe_with_keys(&server, &args);
        let output = run(install.arg(scratch.join("root")).arg(path.unwrap()));
        assert!(
            server.request_count() > before,
            "{url}: the bucket was not used"
        );
        assert!(output.code != Some(0), "{url}");
        let said = "leads out of the cache";
        assert!(output.stderr.contains(said), "{url}: {}", output.stderr);
        let log = server.log();
        assert!(!log.contains("private") && !log.contains("secret"), "{url}");

        // A push replaces such a narinfo.
        let to = format!("{from}&addressing-style=path");
        let damaged = push(&server, &to, &corpus, &[]).expect(0);
        assert_eq!(damaged.json()["copied"], corpus.paths.len(), "{url}");
        assert!(damaged.stderr.contains(said), "{url}: {}", damaged.stderr);
        fs::remove_dir_all(&prefix).unwrap();
    }
}
