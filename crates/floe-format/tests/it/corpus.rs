//! The fuzz targets' properties, checked for the committed corpus.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub, reason = "the file is also the root of a library")]
#[path = "../../../../fuzz/src/lib.rs"]
mod fuzz;

/// Checks every file of a target's corpus.
fn check(target: &str, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("the corpus is part of the repository") {
        let path = entry.expect("the directory can be read").path();
        check(&fs::read(&path).expect("a corpus file can be read"));
        count += 1;
    }
    assert!(count > 0, "the corpus in {} is empty", directory.display());
}

#[test]
fn nars() {
    check("nar", fuzz::check_nar);
}

#[test]
fn narinfos() {
    check("narinfo", fuzz::check_narinfo);
}

#[test]
fn hashes() {
    check("hash", fuzz::check_hash);
}

#[test]
fn nix32() {
    check("nix32", fuzz::check_nix32);
}

#[test]
fn signatures() {
    check("signature", fuzz::check_signature);
}

#[test]
fn netrcs() {
    check("netrc", fuzz::check_netrc);
}

#[test]
fn cache_infos() {
    check("cache_info", fuzz::check_cache_info);
}

#[test]
fn nix_confs() {
    check("nix_conf", fuzz::check_nix_conf);
}

#[test]
fn listings() {
    check("listing", fuzz::check_listing);
}

#[test]
fn derivations() {
    check("derivation", fuzz::check_derivation);
}

#[test]
fn store_paths() {
    check("store_path", fuzz::check_store_path);
}

#[test]
fn content_addresses() {
    check("content_address", fuzz::check_content_address);
}
