//! The committed corpora of the fuzz targets, to check their properties in plain tests.

use std::fs;
use std::path::Path;

/// Checks every file of a target's corpus.
pub fn check_files(target: &str, check: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("the corpus is part of the repository") {
        let path = entry.unwrap().path();
        check(&fs::read(path).unwrap());
        count += 1;
    }
    assert!(count > 0, "the corpus in {} is empty", directory.display());
}
