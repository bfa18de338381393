//! Servers that stall, close the connection within a response head, or send invalid narinfos.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::assert_brought_the_rest;
use crate::faulty::{Faulty, assert_holds_exactly, faulty};
use crate::server::{Fault, Server};
use crate::support::{Ran, floe, run};

/// Installs everything with a stall timeout of one second.
fn install(cache: &Faulty, server: &Server) -> Ran {
    let mut command = floe(["install", "--json", "--from", &server.url(), "--root"]);
    command.arg(&cache.root).arg(&cache.corpus.root);
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    run(command.args(["--option", "stalled-download-timeout", "1"]))
}

/// Returns how often this fault was injected into requests whose path ends with `suffix`.
fn met(server: &Server, suffix: &str, fault: &Fault) -> usize {
    let hits = server.hits_on(suffix);
    let hits = hits.iter().filter(|hit| hit.fault.as_ref() == Some(fault));
    hits.count()
}

/// One file of each kind that floe requests: nix-cache-info, a narinfo, a NAR that is prefetched
/// whole, and one that is streamed.
fn files(cache: &Faulty) -> [String; 4] {
    let onig = cache.path("libonig5");
    let nar = |name: &str| cache.narinfo(&cache.path(name)).url;
    [
        "nix-cache-info".into(),
        format!("{}.narinfo", onig.hash_part()),
        nar("libonig5"),
        nar("libc6"),
    ]
}

#[test]
fn what_stands_still_is_given_up_in_time_and_tried_again() {
    let Some(cache) = faulty("zstd") else { return };
    for file in files(&cache) {
        let server = Server::start(&cache.cache);
        // All of the files are longer, so the response stalls in the middle.
        let fault = Fault::Hang(20);
        server.fail_times(&file, fault.clone(), 1);
        let ran = install(&cache, &server).expect(0);
        assert_eq!(met(&server, &file, &fault), 1);
        let hits = server.hits_on(&file);
        let apart = hits[1].at - hits[0].at;
        assert_eq!(hits.len(), 2, "{file}");
        assert!(apart >= Duration::from_secs(1), "{file}: {apart:?}");
        assert!(apart < Duration::from_secs(20), "{file}: {apart:?}");
        if file.starts_with("nar/") {
            ran.says("retrying").says("nothing arrived for 1 seconds");
        }
        assert_holds_exactly(&cache.root, &cache.without(&[]));
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
}

#[test]
fn a_large_body_that_stands_still_is_gone_on_with_where_it_stopped() {
    let Some(cache) = faulty("zstd") else { return };
    let nar = cache.narinfo(&cache.path("libc6")).url;
    let server = Server::start(&cache.cache).with_validators();
    let fault = Fault::Hang(2_000_000);
    server.fail_times(&nar, fault.clone(), 1);
    install(&cache, &server).expect(0);
    assert_eq!(met(&server, &nar, &fault), 1);
    let hits = server.hits_on(&nar);
    let said = |name: &str| -> Vec<_> {
        let hits = hits.iter();
        hits.map(|hit| hit.fields.get(name).cloned()).collect()
    };
    assert_eq!(said("range"), [None, Some("bytes=2000000-".into())]);
    // A range of a compressed representation could not be appended.
    assert_eq!(said("accept-encoding")[1].as_deref(), Some("identity"));
    assert_holds_exactly(&cache.root, &cache.without(&[]));
}

/// floe counts decompressed bytes, but the server would resume in the compressed ones.
#[test]
fn a_body_that_the_server_packs_is_fetched_from_its_beginning_where_it_breaks_off() {
    let Some(cache) = faulty("none") else { return };
    let path = cache.path("libc6");
    let nar = cache.narinfo(&path).url;
    let mut gzip = Command::new("gzip");
    let packed = gzip.arg("-c").arg(cache.nar(&path)).output().unwrap();
    let packed = packed.stdout;
    assert!(packed.len() > 4_000_000, "{} bytes", packed.len());
    let server = Server::start(&cache.cache).with_validators();
    let cut = Fault::CutPacked(packed.clone(), 1_000_000);
    server.fail_times(&nar, cut.clone(), 1);
    server.fail(&nar, Fault::Packed(packed));
    install(&cache, &server).expect(0);
    assert_eq!(met(&server, &nar, &cut), 1);
    let hits = server.hits_on(&nar);
    assert_eq!(hits.len(), 2);
    assert_eq!(hits[1].fields.get("range"), None);
    assert_holds_exactly(&cache.root, &cache.without(&[]));
}

#[test]
fn what_always_stands_still_fails_alone_and_the_next_run_brings_it() {
    let Some(cache) = faulty("zstd") else { return };
    let (path, fault) = (cache.path("libc6"), Fault::Hang(1000));
    let nar = cache.narinfo(&path).url;
    let server = Server::start(&cache.cache);
    server.fail(&nar, fault.clone());
    let ran = install(&cache, &server).expect(4);
    ran.says(&nar).says("nothing arrived for 1 seconds");
    assert_eq!(met(&server, &nar, &fault), 5);
    let kept = cache.without(&[&path]);
    assert!(!kept.is_empty());
    let left = cache.assert_holds(&kept);
    assert!(
        !left.is_empty(),
        "no staged tree waited for the stalled path"
    );

    server.heal();
    let since = server.hits().len();
    install(&cache, &server).expect(0);
    let base = |path: &String| path.rsplit('/').next().unwrap().to_owned();
    let kept = kept.union(&left).map(base).collect();
    assert_brought_the_rest(&cache.corpus, &server, since, &kept);
    assert_holds_exactly(&cache.root, &cache.without(&[]));
}

#[test]
fn a_head_that_breaks_off_is_asked_for_again_and_then_given_up() {
    let Some(cache) = faulty("zstd") else { return };
    for len in [1, 20] {
        let server = Server::start(&cache.cache);
        let fault = Fault::CutHead(len);
        for file in files(&cache) {
            server.fail_times(&file, fault.clone(), 2);
        }
        cache.install(&server.url()).expect(0);
        for file in files(&cache) {
            assert_eq!(met(&server, &file, &fault), 2, "{file}");
        }
        assert_holds_exactly(&cache.root, &cache.without(&[]));
        floe_store::tree::remove_tree(&cache.root).unwrap();
    }
    let path = cache.path("libonig5");
    let narinfo = format!("{}.narinfo", path.hash_part());
    for file in [narinfo, cache.narinfo(&path).url] {
        let server = Server::start(&cache.cache);
        server.fail(&file, Fault::CutHead(20));
        cache.refuses(&server.url(), &[&path], 4, &["fetching http", &file]);
        assert_eq!(met(&server, &file, &Fault::CutHead(20)), 5, "{file}");
    }
}

#[test]
fn a_narinfo_of_many_megabytes_or_of_garbage_costs_its_path_alone() {
    let Some(cache) = faulty("zstd") else { return };
    let path = cache.path("libonig5");
    let file = format!("{}.narinfo", path.hash_part());
    let good = fs::read(cache.cache.join(&file)).unwrap();
    let padded = |mut text: Vec<u8>, len: usize| {
        text.extend_from_slice(b"X: ");
        text.resize(len, b'x');
        text.push(b'\n');
        text
    };
    let mut noise = good.clone();
    noise[40..80].fill(0xff);
    let mut halved = good.clone();
    halved.truncate(good.len() / 2);
    for (garbage, says) in [
        (
            padded(good.clone(), 64 << 20),
            "longer than NARINFO_LEN_MAX",
        ),
        (vec![b'\n'; 8 << 20], "longer than NARINFO_LEN_MAX"),
        (Vec::new(), "is corrupt"),
        (vec![0; 1000], "is corrupt"),
        (noise, "is corrupt"),
        (halved, "is corrupt"),
        (good.repeat(2), "is corrupt"),
    ] {
        fs::write(cache.cache.join(&file), &garbage).unwrap();
        let server = Server::start(&cache.cache);
        cache.refuses(&server.url(), &[&path], 3, &["the narinfo", &file, says]);
        assert_eq!(server.hits_on(&file).len(), 1);
    }
    // A narinfo that is merely long is accepted.
    fs::write(cache.cache.join(&file), padded(good, 3 << 20)).unwrap();
    cache.install(&Server::start(&cache.cache).url()).expect(0);
}

#[test]
fn a_cache_that_says_megabytes_of_itself_is_none() {
    let Some(cache) = faulty("zstd") else { return };
    let info = cache.cache.join("nix-cache-info");
    for garbage in [vec![b'x'; 64 << 20], b"StoreDir: \xff\n".to_vec()] {
        fs::write(&info, garbage).unwrap();
        let server = Server::start(&cache.cache);
        let ran = cache.install(&server.url()).expect(4);
        ran.says("is not a binary cache");
        assert_eq!(server.hits().len(), 1);
    }
}
