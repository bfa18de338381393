//! Checks the properties of the fuzz targets with the committed corpus.

use floe_testkit::fuzz_corpus::check_files;

#[expect(
    unreachable_pub,
    reason = "the file is also the root of a library crate"
)]
#[path = "../../../../fuzz/src/lib.rs"]
mod fuzz;

#[test]
fn nars() {
    check_files("nar", fuzz::check_nar);
}

#[test]
fn narinfos() {
    check_files("narinfo", fuzz::check_narinfo);
}

#[test]
fn realisations() {
    check_files("realisation", fuzz::check_realisation);
}

#[test]
fn hashes() {
    check_files("hash", fuzz::check_hash);
    check_files("validity_registration", fuzz::check_validity_registration);
}

#[test]
fn nix32() {
    check_files("nix32", fuzz::check_nix32);
}

#[test]
fn signatures() {
    check_files("signature", fuzz::check_signature);
}

#[test]
fn netrcs() {
    check_files("netrc", fuzz::check_netrc);
}

#[test]
fn cache_infos() {
    check_files("cache_info", fuzz::check_cache_info);
}

#[test]
fn leases() {
    check_files("lease", fuzz::check_lease);
}

#[test]
fn nix_confs() {
    check_files("nix_conf", fuzz::check_nix_conf);
}

#[test]
fn listings() {
    check_files("listing", fuzz::check_listing);
}

#[test]
fn derivations() {
    check_files("derivation", fuzz::check_derivation);
}

#[test]
fn store_paths() {
    check_files("store_path", fuzz::check_store_path);
}

#[test]
fn content_addresses() {
    check_files("content_address", fuzz::check_content_address);
}
