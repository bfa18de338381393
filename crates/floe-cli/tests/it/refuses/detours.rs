//! Redirects, and servers that are not binary caches.

use std::fs;

use floe_format::StoreDir;

use super::transfers::{assert_happened, nar_name};
use crate::faulty::{assert_verified, faulty};
use crate::server::{Fault, Server};

#[test]
fn nars_may_lie_on_another_host() {
    let Some(cache) = faulty("zstd") else { return };
    let nars = Server::start(&cache.cache);
    for path in &cache.corpus.paths {
        let path = StoreDir::default().parse(path).unwrap();
        cache.edit(&path, |narinfo| {
            narinfo.url = format!("{}/{}", nars.url(), narinfo.url)
        });
    }
    let narinfos = Server::start(&cache.cache);
    cache.install(&narinfos.url()).expect(0);
    assert_eq!(nars.hits().len(), cache.corpus.paths.len());
    assert!(
        nars.hits()
            .iter()
            .all(|hit| hit.status == 200 && hit.path.starts_with("/nar/"))
    );
    assert!(
        narinfos
            .hits()
            .iter()
            .all(|hit| !hit.path.contains("/nar/"))
    );
    assert_verified(&cache.root, cache.corpus.paths.len());
}

#[test]
fn redirections_are_followed_and_circles_are_not() {
    let Some(cache) = faulty("zstd") else { return };
    let (path, nar) = (cache.path("libonig5"), nar_name(&cache, "libonig5"));
    let narinfo = format!("{}.narinfo", path.hash_part());
    for file in [format!("nar/{nar}"), narinfo, "nix-cache-info".to_owned()] {
        let (server, elsewhere) = (Server::start(&cache.cache), Server::start(&cache.cache));
        let fault = Fault::Redirect(format!("{}/{file}", elsewhere.url()));
        server.fail(&file, fault.clone());
        cache.install(&server.url()).expect(0);
        assert_happened(&server, &file, &fault, 1);
        assert_eq!(elsewhere.hits().len(), 1, "{:?}", elsewhere.hits());
        assert_eq!(elsewhere.hits_on(&file).len(), 1);
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
    let circle = Server::start(&cache.cache);
    circle.fail(&nar, Fault::Redirect(format!("{}/nar/{nar}", circle.url())));
    cache.refuses(&circle.url(), &[&path], 4, &[&nar, "too many redirects"]);
    assert!(
        (2..=20).contains(&circle.faults()),
        "{} requests",
        circle.faults()
    );
}

#[test]
fn a_server_without_nix_cache_info_is_no_cache() {
    let Some(cache) = faulty("zstd") else { return };
    let server = Server::start(&cache.cache);
    server.fail("nix-cache-info", Fault::Status(404));
    cache
        .install(&server.url())
        .expect(4)
        .says("is not a binary cache: it has no nix-cache-info");
    server.heal();
    fs::write(cache.cache.join("nix-cache-info"), "StoreDir: /gnu/store\n").unwrap();
    cache
        .install(&server.url())
        .expect(1)
        .says("--store-dir /gnu/store");
    assert_eq!(server.hits().len(), 2, "{:?}", server.hits());
    let gone = server.url();
    drop(server);
    cache
        .install(&gone)
        .expect(4)
        .says("nix-cache-info")
        .says("refused");
}
