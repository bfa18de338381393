//! NARs compressed with zstd: cached, or compressed on the fly.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use floe_testkit::http_client::{Response, hash_part};
use floe_testkit::{corpus, scratch, wait_until};
use rustix::fs::inotify;

use super::{NAR_HEADERS, assert_response, libc_path, nar_target, serve_jq};
use crate::server_process::ServerProcess;

const ACCEPT_ZSTD: &str = "Accept-Encoding: deflate, gzip, br, zstd\r\n";

/// Returns the number of cached NARs in a directory, and their total size in bytes.
fn cached_nars(dir: &Path) -> (usize, u64) {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let copies = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".nar.zst"));
    copies.fold((0, 0), |(count, len), entry| {
        (count + 1, len + entry.metadata().map_or(0, |it| it.len()))
    })
}

fn is_compressed(response: &Response) -> bool {
    response.field("Content-Encoding") == Some("zstd")
}

#[track_caller]
fn assert_is_zstd_of(copy: &Response, plain: &Response) {
    let etag = format!(
        "{}-zstd\"",
        plain.field("ETag").unwrap().trim_end_matches('"')
    );
    let length = copy.body.len().to_string();
    let fields = [
        ("Content-Type", "application/x-nix-nar"),
        ("Content-Encoding", "zstd"),
        ("Vary", "Accept-Encoding"),
        ("Accept-Ranges", "-"),
        ("Cache-Control", "public, max-age=31536000, immutable"),
        ("ETag", &etag),
    ];
    assert_response("zstd", copy, 200, &fields);
    if copy.field("Transfer-Encoding").is_none() {
        assert_eq!(copy.field("Content-Length"), Some(length.as_str()));
    }
    assert!(copy.body.len() < plain.body.len());
    assert!(zstd::decode_all(&*copy.body).unwrap() == plain.body);
}

#[test]
fn first_request_gets_plain_nar_and_later_ones_cached_zstd() {
    let Some((corpus, plain)) = serve_jq() else {
        return;
    };
    let scratch = scratch();
    let side = scratch.join("side");
    let dir = side.display().to_string();
    let args = ["--compress", "cached", "--compressed-cache", &dir];
    let serve = ServerProcess::start(corpus.store(), &args);
    let url = nar_target(&serve, libc_path(&corpus));
    let whole = plain.get(&url);
    let first = serve.get_with(&url, ACCEPT_ZSTD);
    let mut fields = NAR_HEADERS.to_vec();
    fields.retain(|(name, _)| *name != "Vary");
    fields.push(("Vary", "Accept-Encoding"));
    assert_response("first", &first, 200, &fields);
    assert!(first.body == whole.body);
    wait_until("no compressed NAR appears", || {
        is_compressed(&serve.get_with(&url, ACCEPT_ZSTD))
    });
    let mut client = serve.connect();
    let copy = client.request("GET", &url, ACCEPT_ZSTD);
    assert!(copy.field("Content-Length").is_some());
    assert_is_zstd_of(&copy, &whole);
    let head = client.request("HEAD", &url, ACCEPT_ZSTD);
    assert_eq!(head.stable_head(), copy.stable_head());
    // Requests without zstd or with a range get the plain NAR.
    for field in [
        "",
        "Accept-Encoding: gzip\r\n",
        "Accept-Encoding: zstd;q=0\r\n",
    ] {
        let response = client.request("GET", &url, field);
        assert_response(field, &response, 200, &fields);
        assert!(response.body == whole.body, "{field}");
    }
    let ranged = client.request("GET", &url, &format!("{ACCEPT_ZSTD}Range: bytes=0-9\r\n"));
    assert_response("range", &ranged, 206, &fields);
    assert!(ranged.body == whole.body[..10]);
    let etag = copy.field("ETag").unwrap();
    let none = client.request(
        "GET",
        &url,
        &format!("{ACCEPT_ZSTD}If-None-Match: {etag}\r\n"),
    );
    assert_response("304", &none, 304, &[("ETag", etag)]);
    // The ETag of the compressed NAR does not match the plain one.
    let ranged = format!("Range: bytes=0-9\r\nIf-Range: {etag}\r\n");
    assert_eq!(client.request("GET", &url, &ranged).status, 200);
    assert_eq!(serve.stop(), "");
    // The next server reuses the files, and deletes temporary files of a killed one.
    fs::write(side.join("temporary-1-x"), "half").unwrap();
    let serve = ServerProcess::start(corpus.store(), &args);
    assert_is_zstd_of(&serve.get_with(&url, ACCEPT_ZSTD), &whole);
    assert!(!side.join("temporary-1-x").exists());
    // Delete all cached files.
    for entry in fs::read_dir(&side).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let again = serve.get_with(&url, ACCEPT_ZSTD);
    assert!(!is_compressed(&again) && again.body == whole.body);
    wait_until("no compressed NAR appears again", || {
        is_compressed(&serve.get_with(&url, ACCEPT_ZSTD))
    });
}

#[test]
fn empty_cached_nar_is_replaced() {
    let Some((corpus, plain)) = serve_jq() else {
        return;
    };
    let scratch = scratch();
    let side = scratch.join("side");
    let url = nar_target(&plain, libc_path(&corpus));
    let nar_hash = super::nar_hash_in(&url);
    // A power failure can leave an empty file.
    fs::create_dir(&side).unwrap();
    fs::write(side.join(format!("{nar_hash}.nar.zst")), "").unwrap();
    let dir = side.display().to_string();
    let serve = ServerProcess::start(corpus.store(), &["--compressed-cache", &dir]);
    let response = serve.get_with(&url, ACCEPT_ZSTD);
    assert!(!is_compressed(&response), "{}", response.head);
    wait_until("no compressed NAR appears", || {
        is_compressed(&serve.get_with(&url, ACCEPT_ZSTD))
    });
    assert_is_zstd_of(&serve.get_with(&url, ACCEPT_ZSTD), &plain.get(&url));
}

#[test]
fn compress_always_streams_chunked_zstd() {
    let Some((corpus, plain)) = serve_jq() else {
        return;
    };
    let serve = ServerProcess::start(corpus.store(), &["--compress", "always"]);
    for path in &corpus.paths {
        let url = nar_target(&serve, path);
        let whole = plain.get(&url);
        let mut client = serve.connect();
        let response = client.request("GET", &url, ACCEPT_ZSTD);
        assert_eq!(response.field("Transfer-Encoding"), Some("chunked"));
        assert_is_zstd_of(&response, &whole);
        let head = client.request("HEAD", &url, ACCEPT_ZSTD);
        assert_response("head", &head, 200, &[("Content-Encoding", "zstd")]);
        assert!(client.request("GET", &url, "").body == whole.body);
        let old = format!("GET {url} HTTP/1.0\r\nConnection: keep-alive\r\n{ACCEPT_ZSTD}\r\n");
        let mut client = serve.connect();
        client.send(old.as_bytes());
        let response = client.read_response(false).unwrap();
        assert_response(
            "1.0",
            &response,
            200,
            &[("Transfer-Encoding", "-"), ("Connection", "close")],
        );
        assert!(zstd::decode_all(&*response.body).unwrap() == whole.body);
        assert_eq!(
            serve.get(&format!("/{}.narinfo", hash_part(path))).status,
            200
        );
    }
    assert_eq!(serve.stop(), "");
}

#[test]
fn bounded_nar_cache_evicts_least_recently_used() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let dir = scratch.join("side").display().to_string();
    let bound = 2 * 1024 * 1024;
    let size = bound.to_string();
    let args = [
        "--compress",
        "cached",
        "--compressed-cache",
        &dir,
        "--compressed-cache-size",
        &size,
    ];
    let serve = ServerProcess::start(corpus.store(), &args);
    let mut made = 0;
    for path in &corpus.paths {
        let url = nar_target(&serve, path);
        let response = serve.get_with(&url, ACCEPT_ZSTD);
        let is_small = response.body.len() < 1024 * 1024;
        if is_compressed(&response) || response.body.len() < 64 * 1024 || !is_small {
            continue;
        }
        wait_until("no compressed NAR appears", || {
            is_compressed(&serve.get_with(&url, ACCEPT_ZSTD))
        });
        made += 1;
        let (_, bytes) = cached_nars(Path::new(&dir));
        assert!(bytes <= bound, "{bytes} bytes");
    }
    let (kept, _) = cached_nars(Path::new(&dir));
    assert!(0 < kept && kept < made, "{kept} of {made}");
    // A NAR larger than the whole cache is sent uncompressed.
    let large = nar_target(&serve, libc_path(&corpus));
    assert_eq!(serve.get_with(&large, ACCEPT_ZSTD).status, 200);
    serve.stop();
    assert!(cached_nars(Path::new(&dir)).1 <= bound);
}

#[test]
fn oversized_nar_is_compressed_once_and_evicts_nothing() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let dir = scratch.join("side").display().to_string();
    let args = [
        "--compressed-cache",
        &dir,
        "--compressed-cache-size",
        "500000",
    ];
    let serve = ServerProcess::start(corpus.store(), &args);
    let created = CreatedFiles::watch(Path::new(&dir));
    let urls = corpus.paths.iter().map(|path| nar_target(&serve, path));
    let is_fitting = |url: &String| (8 * 1024..400_000).contains(&serve.get(url).body.len());
    let fitting: Vec<String> = urls.filter(is_fitting).take(3).collect();
    assert_eq!(fitting.len(), 3, "too few paths of medium size");
    let is_ready = |url: &str| is_compressed(&serve.get_with(url, ACCEPT_ZSTD));
    wait_until("no compressed NAR appears", || is_ready(&fitting[0]));
    let large = nar_target(&serve, libc_path(&corpus));
    // NARs are compressed one at a time. When this one is ready, all earlier jobs are done.
    assert!(!is_ready(&large));
    wait_until("no compressed NAR appears after the oversized one", || {
        is_ready(&fitting[1])
    });
    for _ in 0..5 {
        assert!(!is_ready(&large));
    }
    wait_until("no compressed NAR appears at the end", || {
        is_ready(&fitting[2])
    });
    let created = created.names();
    let large = super::nar_hash_in(&large);
    let times = created.iter().filter(|name| name.ends_with(large)).count();
    assert_eq!(times, 1, "{created:?}");
    assert_eq!(cached_nars(Path::new(&dir)).0, 3);
    assert!(
        fitting.iter().all(|url| is_ready(url)),
        "a cached NAR was evicted"
    );
    assert_eq!(serve.stop(), "");
}

/// Records file creations in a directory by inotify.
struct CreatedFiles(OwnedFd);

impl CreatedFiles {
    fn watch(dir: &Path) -> CreatedFiles {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let events = inotify::init(flags).unwrap();
        inotify::add_watch(&events, dir, inotify::WatchFlags::CREATE).unwrap();
        CreatedFiles(events)
    }

    /// Returns the names of the files created so far.
    fn names(self) -> Vec<String> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.0, &mut buffer);
        let mut names = Vec::new();
        while let Ok(event) = events.next() {
            let name = event.file_name().unwrap().to_str().unwrap();
            names.push(name.to_owned());
        }
        names
    }
}
