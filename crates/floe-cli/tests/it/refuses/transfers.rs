//! Server errors, truncated bodies, and bodies of the wrong length.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_format::{Hash, HashAlgorithm};

use crate::faulty::{Faulty, assert_verified, faulty};
use crate::server::{Fault, Hit, Server};
use crate::support::{floe, run, tree};

/// Returns the file name of a NAR.
pub(super) fn nar_name(cache: &Faulty, name: &str) -> String {
    cache.narinfo(&cache.path(name)).url.replace("nar/", "")
}

/// Asserts that exactly this fault was injected `times` times, and that every request was a GET.
#[track_caller]
pub(super) fn assert_happened(server: &Server, suffix: &str, fault: &Fault, times: usize) {
    let hits = server.hits_on(suffix);
    let faults = hits
        .iter()
        .filter(|hit| hit.fault.as_ref() == Some(fault))
        .count();
    assert_eq!(faults, times, "{fault:?}: {hits:?}");
    assert!(hits.iter().all(|hit| hit.method == "GET"), "{hits:?}");
}

#[test]
fn a_narinfo_that_is_not_there_leaves_out_what_needs_it() {
    let Some(cache) = faulty("zstd") else { return };
    let path = cache.path("libonig5");
    let narinfo = format!("{}.narinfo", path.hash_part());
    for status in [404, 403, 410] {
        let server = Server::start(&cache.cache);
        server.fail(&narinfo, Fault::Status(status));
        let says = [
            path.as_str(),
            "is not in http://127.0.0.1",
            "was left out because",
        ];
        cache.refuses(&server.url(), &[&path], 1, &says);
        assert_happened(&server, &narinfo, &Fault::Status(status), 1);
    }
}

#[test]
fn a_nar_that_is_not_there_is_a_fault_of_the_server() {
    let Some(cache) = faulty("zstd") else { return };
    // libonig5 is prefetched whole, libc6 is streamed.
    for name in ["libonig5", "libc6"] {
        let (path, nar) = (cache.path(name), nar_name(&cache, name));
        let server = Server::start(&cache.cache);
        server.fail(&nar, Fault::Status(404));
        cache.refuses(
            &server.url(),
            &[&path],
            4,
            &[&nar, "the server does not have it"],
        );
        assert_happened(&server, &nar, &Fault::Status(404), 1);
    }
}

#[test]
fn a_server_error_is_tried_five_times() {
    let Some(cache) = faulty("zstd") else { return };
    let path = cache.path("libonig5");
    for file in [
        nar_name(&cache, "libonig5"),
        format!("{}.narinfo", path.hash_part()),
    ] {
        let server = Server::start(&cache.cache);
        server.fail(&file, Fault::Status(500));
        cache.refuses(
            &server.url(),
            &[&path],
            4,
            &[&file, "the server answered 500"],
        );
        assert_happened(&server, &file, &Fault::Status(500), 5);
    }
}

#[test]
fn a_server_that_comes_to_itself_is_forgiven() {
    let Some(cache) = faulty("zstd") else { return };
    let server = Server::start(&cache.cache);
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let faults = [
        ("nix-cache-info".to_owned(), Fault::Status(503)),
        (narinfo, Fault::Status(429)),
        (nar_name(&cache, "libonig5"), Fault::Status(503)),
        (nar_name(&cache, "libgcc"), Fault::CutChunked(1000)),
        (nar_name(&cache, "libc6"), Fault::Cut(2_000_000)),
    ];
    for (file, fault) in &faults {
        server.fail_times(file, fault.clone(), 2);
    }
    let ran = cache.install(&server.url()).expect(0);
    for (file, fault) in &faults {
        assert_happened(&server, file, fault, 2);
        assert_eq!(server.hits_on(file).len(), 3, "{file}");
    }
    assert!(ran.says("retrying").says("libc6").stderr.contains("503"));
    assert!(
        tree(&cache.root) == tree(&cache.corpus.store()),
        "the trees differ"
    );
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn a_body_that_breaks_off_is_a_fault_of_the_network() {
    let Some(cache) = faulty("zstd") else { return };
    for (name, fault) in [
        ("libonig5", Fault::Cut(100_000)),
        ("libc6", Fault::Cut(2_000_000)),
        ("libc6", Fault::CutChunked(2_000_000)),
    ] {
        let (path, nar) = (cache.path(name), nar_name(&cache, name));
        let server = Server::start(&cache.cache);
        server.fail(&nar, fault.clone());
        cache.refuses(&server.url(), &[&path], 4, &["fetching http", &nar]);
        assert_happened(&server, &nar, &fault, 5);
    }
}

#[test]
fn a_body_that_is_too_short_or_too_long_is_corrupt() {
    for compression in ["zstd", "xz", "none"] {
        let Some(cache) = faulty(compression) else {
            return;
        };
        let (path, nar) = (cache.path("libonig5"), nar_name(&cache, "libonig5"));
        let size = cache.narinfo(&path).file_size.unwrap();
        for (fault, says) in [
            (
                Fault::Short(100_000),
                format!("100000, but {size} was promised"),
            ),
            (
                Fault::CutUnannounced(100_000),
                format!("100000, but {size} was promised"),
            ),
            (Fault::Append(vec![0; 64]), "size is".to_owned()),
        ] {
            let server = Server::start(&cache.cache);
            server.fail(&nar, fault.clone());
            cache.refuses(&server.url(), &[&path], 3, &[path.as_str(), &says]);
            assert_happened(&server, &nar, &fault, 1);
        }
        // Without FileHash and FileSize, the decoder or the NAR detects the fault.
        cache.edit(&path, |narinfo| {
            (narinfo.file_hash, narinfo.file_size) = (None, None)
        });
        for fault in [Fault::Short(100_000), Fault::Append(b"more".to_vec())] {
            let server = Server::start(&cache.cache);
            server.fail(&nar, fault.clone());
            cache.refuses(&server.url(), &[&path], 3, &[path.as_str()]);
            assert_happened(&server, &nar, &fault, 1);
        }
    }
}

#[test]
fn a_bodys_last_bytes_may_come_late_and_its_connection_serves_on() {
    let Some(cache) = faulty("zstd") else { return };
    let gzip = cache.scratch.join("gzip");
    run(floe(["copy", "--from", &cache.file_url(), "--to"])
        .arg(format!("file://{}?compression=gzip", gzip.display()))
        .arg(&cache.corpus.root))
    .expect(0);
    let xz = cache.corpus.cache_copy("xz", &cache.scratch.join("xz"));
    for (directory, late) in [(&cache.cache, 35), (&xz, 35), (&gzip, 8)] {
        // Without FileSize, every NAR counts as large, so NARs are streamed one by one.
        without_file_sizes(directory);
        let server = Server::start(directory);
        for path in &cache.corpus.paths {
            server.fail(&nar_of(directory, path), Fault::Late(late));
        }
        run(floe([
            "install",
            "--jobs",
            "1",
            "--no-check-sigs",
            "--from",
            &server.url(),
            "--root",
        ])
        .arg(&cache.root)
        .arg(&cache.corpus.root))
        .expect(0);
        assert_eq!(server.faults(), cache.corpus.paths.len());
        let hits = server.hits();
        let reused = reused_after_faults(&hits);
        assert!(
            !reused.is_empty(),
            "no connection was reused after a late body: {hits:?}"
        );
        let connections = hits.iter().map(|hit| hit.connection).max().unwrap() + 1;
        assert!(
            connections < cache.corpus.paths.len(),
            "{connections} connections: {hits:?}"
        );
        assert!(
            tree(&cache.root) == tree(&cache.corpus.store()),
            "the trees differ"
        );
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

/// Returns the connections that carried another request after a response with a fault.
fn reused_after_faults(hits: &[Hit]) -> BTreeSet<usize> {
    let mut faulty = BTreeSet::new();
    let mut reused = BTreeSet::new();
    for hit in hits {
        if faulty.contains(&hit.connection) {
            reused.insert(hit.connection);
        }
        if hit.fault.is_some() {
            faulty.insert(hit.connection);
        }
    }
    reused
}

/// Returns the NAR URL of a path, as its narinfo has it.
fn nar_of(directory: &Path, path: &str) -> String {
    let part = &path["/nix/store/".len()..][..32];
    let text = fs::read_to_string(directory.join(format!("{part}.narinfo"))).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("URL: "))
        .unwrap()
        .to_owned()
}

fn without_file_sizes(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let file = entry.unwrap().path();
        if file
            .extension()
            .is_some_and(|extension| extension == "narinfo")
        {
            let text = fs::read_to_string(&file).unwrap();
            let kept = text
                .split_inclusive('\n')
                .filter(|line| !line.starts_with("FileSize"));
            fs::write(&file, kept.collect::<String>()).unwrap();
        }
    }
}

#[test]
fn data_behind_a_compressed_stream_is_refused_even_if_its_hash_is_right() {
    for compression in ["zstd", "xz"] {
        let Some(cache) = faulty(compression) else {
            return;
        };
        let path = cache.path("libonig5");
        let nar = cache.nar(&path);
        let mut bytes = fs::read(&nar).unwrap();
        bytes.extend_from_slice(b"and now for something completely different");
        fs::write(&nar, &bytes).unwrap();
        let digest = floe_hash::sha256(&bytes);
        cache.edit(&path, |narinfo| {
            narinfo.file_hash = Some(Hash::new(HashAlgorithm::Sha256, &digest).unwrap());
            narinfo.file_size = Some(bytes.len() as u64);
        });
        let says = format!("decompressing it as {compression}");
        cache.refuses(&cache.file_url(), &[&path], 3, &[path.as_str(), &says]);
    }
}
