//! The fuzz targets' properties, checked for the committed corpus.

use floe_testkit::fuzz_corpus::check_files;

#[allow(unreachable_pub, reason = "the fuzz targets include the file too")]
#[path = "../../../fuzz/src/names.rs"]
mod names;

/// Checks every prefix of every file of a target's corpus.
fn check_prefixes(target: &str, check: fn(&[u8])) {
    check_files(target, |bytes| {
        for len in 0..=bytes.len() {
            check(&bytes[..len]);
        }
    });
}

#[test]
fn name_corpus_holds_its_properties() {
    check_prefixes("name", names::check_name);
}

#[test]
fn name_file_corpus_holds_its_properties() {
    check_prefixes("name_file", names::check_name_file);
}

#[test]
fn hydra_build_corpus_holds_its_properties() {
    check_prefixes("hydra_build", names::check_hydra_build);
}

#[test]
fn name_list_corpus_holds_its_properties() {
    check_prefixes("name_list", names::check_name_list);
}

#[test]
fn pin_corpus_holds_its_properties() {
    check_prefixes("pin", names::check_pin);
}

#[test]
fn lock_file_corpus_holds_its_properties() {
    check_prefixes("lock_file", names::check_lock_file);
}
