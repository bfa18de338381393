//! Server errors, truncated bodies, and bodies of the wrong length.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_format::{Hash, HashAlgorithm};
use floe_testkit::fault_server::{Fault, FaultServer, RecordedRequest};
use floe_testkit::{run, tree};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// Returns the file name of a NAR.
pub(crate) fn nar_file_name(cache: &FaultyCache, name: &str) -> String {
    cache.narinfo(&cache.path(name)).url.replace("nar/", "")
}

/// Asserts that exactly this fault was injected `times` times, and that every request was a GET.
#[track_caller]
pub(super) fn assert_fault_count(server: &FaultServer, suffix: &str, fault: &Fault, times: usize) {
    let requests = server.requests_for(suffix);
    let faults = requests
        .iter()
        .filter(|request| request.fault.as_ref() == Some(fault))
        .count();
    assert_eq!(faults, times, "{fault:?}: {requests:?}");
    assert!(
        requests.iter().all(|request| request.method == "GET"),
        "{requests:?}"
    );
}

#[test]
fn missing_narinfo_fails_its_referrers() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    let narinfo = format!("{}.narinfo", path.hash_part());
    for (status, code, said) in [
        (404, 1, "in http://127.0.0.1"),
        (410, 1, "in http://127.0.0.1"),
        // The path may be there, and not for this user.
        (403, 4, "the server answered 403"),
    ] {
        let server = FaultServer::start(&cache.cache);
        server.fail(&narinfo, Fault::Status(status));
        let hash_part = path.hash_part().to_string();
        let says = [&*hash_part, said, "2 other paths need them"];
        cache.assert_install_fails_for(&server.url(), &[&path], code, &says);
        assert_fault_count(&server, &narinfo, &Fault::Status(status), 1);
    }
}

#[test]
fn missing_nar_is_a_server_fault() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    // libonig5 is prefetched whole, libc6 is streamed.
    for name in ["libonig5", "libc6"] {
        let (path, nar) = (cache.path(name), nar_file_name(&cache, name));
        let server = FaultServer::start(&cache.cache);
        server.fail(&nar, Fault::Status(404));
        cache.assert_install_fails_for(
            &server.url(),
            &[&path],
            4,
            &[&nar, "the server does not have it"],
        );
        assert_fault_count(&server, &nar, &Fault::Status(404), 1);
    }
}

#[test]
fn server_error_is_tried_five_times() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("libonig5");
    for file in [
        nar_file_name(&cache, "libonig5"),
        format!("{}.narinfo", path.hash_part()),
    ] {
        let server = FaultServer::start(&cache.cache);
        server.fail(&file, Fault::Status(500));
        cache.assert_install_fails_for(
            &server.url(),
            &[&path],
            4,
            &[&file, "the server answered 500"],
        );
        assert_fault_count(&server, &file, &Fault::Status(500), 5);
    }
}

#[test]
fn temporary_server_errors_are_retried() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    let narinfo = format!("{}.narinfo", cache.path("libonig5").hash_part());
    let faults = [
        ("nix-cache-info".to_owned(), Fault::Status(503)),
        (narinfo, Fault::Status(429)),
        (nar_file_name(&cache, "libonig5"), Fault::Status(503)),
        (
            nar_file_name(&cache, "libgcc"),
            Fault::TruncatedChunked(1000),
        ),
        (nar_file_name(&cache, "libc6"), Fault::Truncated(2_000_000)),
    ];
    for (file, fault) in &faults {
        server.fail_times(file, fault.clone(), 2);
    }
    let ran = cache.install(&server.url()).expect(0);
    for (file, fault) in &faults {
        assert_fault_count(&server, file, fault, 2);
        assert_eq!(server.requests_for(file).len(), 3, "{file}");
    }
    assert!(
        ran.stderr_contains("retrying")
            .stderr_contains("libc6")
            .stderr
            .contains("503")
    );
    assert!(
        tree(&cache.root) == tree(&cache.corpus.store()),
        "the trees differ"
    );
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn truncated_body_is_a_network_error() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    for (name, fault) in [
        ("libonig5", Fault::Truncated(100_000)),
        ("libc6", Fault::Truncated(2_000_000)),
        ("libc6", Fault::TruncatedChunked(2_000_000)),
    ] {
        let (path, nar) = (cache.path(name), nar_file_name(&cache, name));
        let server = FaultServer::start(&cache.cache);
        server.fail(&nar, fault.clone());
        cache.assert_install_fails_for(&server.url(), &[&path], 4, &["cannot fetch http", &nar]);
        assert_fault_count(&server, &nar, &fault, 5);
    }
}

#[test]
fn body_of_wrong_length_is_corrupt() {
    for compression in ["zstd", "xz", "none"] {
        let Some(cache) = faulty_cache(compression) else {
            return;
        };
        let (path, nar) = (cache.path("libonig5"), nar_file_name(&cache, "libonig5"));
        let size = cache.narinfo(&path).file_size.unwrap();
        for (fault, says) in [
            (Fault::ShortBody(100_000), format!("100000, not {size}")),
            (
                Fault::TruncatedWithoutLength(100_000),
                format!("100000, not {size}"),
            ),
            (Fault::ExtraBytes(vec![0; 64]), "size is".to_owned()),
        ] {
            let server = FaultServer::start(&cache.cache);
            server.fail(&nar, fault.clone());
            cache.assert_install_fails_for(&server.url(), &[&path], 3, &[path.as_str(), &says]);
            assert_fault_count(&server, &nar, &fault, 1);
        }
        // Without FileHash and FileSize, the decoder or the NAR detects the fault.
        cache.edit(&path, |narinfo| {
            (narinfo.file_hash, narinfo.file_size) = (None, None)
        });
        for fault in [
            Fault::ShortBody(100_000),
            Fault::ExtraBytes(b"more".to_vec()),
        ] {
            let server = FaultServer::start(&cache.cache);
            server.fail(&nar, fault.clone());
            cache.assert_install_fails_for(&server.url(), &[&path], 3, &[path.as_str()]);
            assert_fault_count(&server, &nar, &fault, 1);
        }
    }
}

#[test]
fn connection_is_reused_after_late_last_bytes() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let gzip = cache.scratch.join("gzip");
    run(floe(["copy", "--from", &cache.file_url(), "--to"])
        .arg(format!("file://{}?compression=gzip", gzip.display()))
        .arg(&cache.corpus.root))
    .expect(0);
    let xz = cache.corpus.cache_copy("xz", &cache.scratch.join("xz"));
    for (directory, late) in [(&cache.cache, 35), (&xz, 35), (&gzip, 8)] {
        // Without FileSize, every NAR counts as large, so NARs are streamed one by one.
        without_file_sizes(directory);
        let server = FaultServer::start(directory);
        for path in &cache.corpus.paths {
            server.fail(&nar_url(directory, path), Fault::DelayedTail(late));
        }
        run(floe([
            "install",
            "--jobs",
            "1",
            "--no-check-sigs",
            // Fewer than paths.
            "--option",
            "http-connections",
            "3",
            "--from",
            &server.url(),
            "--root",
        ])
        .arg(&cache.root)
        .arg(&cache.corpus.root))
        .expect(0);
        assert_eq!(server.fault_count(), cache.corpus.paths.len());
        let requests = server.requests();
        let reused = reused_after_faults(&requests);
        assert!(
            !reused.is_empty(),
            "no connection was reused after a late body: {requests:?}"
        );
        let connections = requests
            .iter()
            .map(|request| request.connection)
            .max()
            .unwrap()
            + 1;
        assert!(
            connections < cache.corpus.paths.len(),
            "{connections} connections: {requests:?}"
        );
        assert!(
            tree(&cache.root) == tree(&cache.corpus.store()),
            "the trees differ"
        );
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

/// Returns the connections that carried another request after a response with a fault.
fn reused_after_faults(requests: &[RecordedRequest]) -> BTreeSet<usize> {
    let mut faulty = BTreeSet::new();
    let mut reused = BTreeSet::new();
    for request in requests {
        if faulty.contains(&request.connection) {
            reused.insert(request.connection);
        }
        if request.fault.is_some() {
            faulty.insert(request.connection);
        }
    }
    reused
}

/// Returns the NAR URL of a path, as its narinfo has it.
fn nar_url(directory: &Path, path: &str) -> String {
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
fn trailing_data_after_compressed_stream_is_rejected() {
    for compression in ["zstd", "xz"] {
        let Some(cache) = faulty_cache(compression) else {
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
        let says = format!("as {compression}: ");
        cache.assert_install_fails_for(&cache.file_url(), &[&path], 3, &[path.as_str(), &says]);
    }
}
