//! The fuzz targets' properties, checked for the committed corpus.

use std::fs;
use std::path::Path;

#[allow(unreachable_pub, reason = "the fuzz targets include the file as well")]
#[path = "../../../../fuzz/src/messages.rs"]
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
fn messages_in_cbor() {
    check("messages_cbor", fuzz::check_messages_cbor);
}

#[test]
fn messages_in_flat() {
    check("messages_flat", fuzz::check_messages_flat);
}
