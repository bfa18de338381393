//! floe-format against vectors that real Nix made; see `tests/vectors/README.md`.

mod corpus;
mod derivations;
mod hashes;
mod narinfos;
mod nars;

use std::fs;
use std::path::{Path, PathBuf};

/// Where the vectors are, or the part of them in a subdirectory.
fn vectors(subdirectory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(subdirectory)
}

/// The contents of a vector.
fn vector(path: &str) -> Vec<u8> {
    fs::read(vectors(path)).expect("the vectors are part of the repository")
}

/// The contents of a vector that is text.
fn text_vector(path: &str) -> String {
    String::from_utf8(vector(path)).expect("this vector is text")
}

/// Names and contents of the vectors in a directory whose names end like this, sorted.
fn vectors_in(subdirectory: &str, ending: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(vectors(subdirectory))
        .expect("the vectors are part of the repository")
        .map(|entry| {
            let path = entry.expect("the directory can be read").path();
            let name = path
                .file_name()
                .expect("an entry has a name")
                .to_string_lossy();
            (name.into_owned(), path)
        })
        .filter(|(name, _)| name.ends_with(ending))
        .map(|(name, path)| (name, fs::read(path).expect("a vector can be read")))
        .collect();
    assert!(!found.is_empty(), "no vectors *{ending} in {subdirectory}");
    found.sort();
    found
}
