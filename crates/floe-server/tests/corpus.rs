//! The fuzz targets' properties, checked for the committed corpus.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub, reason = "the fuzz targets include the file too")]
#[path = "../../../fuzz/src/server.rs"]
mod server;

/// Checks every file of a target's corpus, and all that it begins with.
fn check(target: &str, check: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("the corpus is part of the repository") {
        let path = entry.expect("the directory can be read").path();
        let bytes = fs::read(&path).expect("a corpus file can be read");
        for len in 0..=bytes.len() {
            check(&bytes[..len]);
        }
        count += 1;
    }
    assert!(count > 0, "the corpus in {} is empty", directory.display());
}

#[test]
fn http_request_corpus_holds_its_properties() {
    check("http_request", server::check_http_request);
}

#[test]
fn http_range_corpus_holds_its_properties() {
    check("http_range", server::check_http_range);
}
