//! Redirects, and servers that are not binary caches.

use std::fs;

use floe_format::StoreDir;
use floe_testkit::fault_server::{Fault, FaultServer};

use super::transfers::{assert_fault_count, nar_file_name};
use crate::faulty_cache::{assert_verified, faulty_cache};

#[test]
fn nars_on_another_host_are_fetched() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let nars = FaultServer::start(&cache.cache);
    for path in &cache.corpus.paths {
        let path = StoreDir::default().parse(path).unwrap();
        cache.edit(&path, |narinfo| {
            narinfo.url = format!("{}/{}", nars.url(), narinfo.url)
        });
    }
    let narinfos = FaultServer::start(&cache.cache);
    cache.install(&narinfos.url()).expect(0);
    assert_eq!(nars.requests().len(), cache.corpus.paths.len());
    assert!(
        nars.requests()
            .iter()
            .all(|request| request.status == 200 && request.path.starts_with("/nar/"))
    );
    assert!(
        narinfos
            .requests()
            .iter()
            .all(|request| !request.path.contains("/nar/"))
    );
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn redirects_are_followed_but_not_endlessly() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let (path, nar) = (cache.path("libonig5"), nar_file_name(&cache, "libonig5"));
    let narinfo = format!("{}.narinfo", path.hash_part());
    for file in [format!("nar/{nar}"), narinfo, "nix-cache-info".to_owned()] {
        let (server, elsewhere) = (
            FaultServer::start(&cache.cache),
            FaultServer::start(&cache.cache),
        );
        let fault = Fault::Redirect(format!("{}/{file}", elsewhere.url()));
        server.fail(&file, fault.clone());
        cache.install(&server.url()).expect(0);
        assert_fault_count(&server, &file, &fault, 1);
        assert_eq!(elsewhere.requests().len(), 1, "{:?}", elsewhere.requests());
        assert_eq!(elsewhere.requests_for(&file).len(), 1);
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
    let circle = FaultServer::start(&cache.cache);
    circle.fail(&nar, Fault::Redirect(format!("{}/nar/{nar}", circle.url())));
    cache.assert_install_fails_for(&circle.url(), &[&path], 4, &[&nar, "too many redirects"]);
    assert!(
        (2..=20).contains(&circle.fault_count()),
        "{} requests",
        circle.fault_count()
    );
}

#[test]
fn server_without_nix_cache_info_is_not_a_cache() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&cache.cache);
    server.fail("nix-cache-info", Fault::Status(404));
    cache
        .install(&server.url())
        .expect(4)
        .stderr_contains("as a binary cache: it has no valid nix-cache-info");
    server.clear_faults();
    fs::write(cache.cache.join("nix-cache-info"), "StoreDir: /gnu/store\n").unwrap();
    cache
        .install(&server.url())
        .expect(2)
        .stderr_contains("--store-dir /gnu/store");
    assert_eq!(server.requests().len(), 2, "{:?}", server.requests());
    let gone = server.url();
    drop(server);
    cache
        .install(&gone)
        .expect(4)
        .stderr_contains("nix-cache-info")
        .stderr_contains("refused");
}
