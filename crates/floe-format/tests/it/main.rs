//! Tests of floe-format with vectors that Nix made; see `tests/vectors/README.md`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod corpus;
mod derivations;
mod hashes;
mod narinfos;
mod nars;
mod realisations;

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the path of a file or directory among the vectors.
fn vectors(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(path)
}

/// Returns the contents of a vector.
fn vector(path: &str) -> Vec<u8> {
    fs::read(vectors(path)).expect("the vectors are part of the repository")
}

/// Returns the contents of a vector in UTF-8.
fn text_vector(path: &str) -> String {
    String::from_utf8(vector(path)).expect("this vector is UTF-8")
}

/// Returns the sorted names and contents of the vectors in a directory with this extension.
fn vectors_in(directory: &str, extension: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, Vec<u8>)> = fs::read_dir(vectors(directory))
        .expect("the vectors are part of the repository")
        .map(|entry| {
            let path = entry.expect("the directory can be read").path();
            let name = path
                .file_name()
                .expect("an entry has a name")
                .to_string_lossy();
            (name.into_owned(), path)
        })
        .filter(|(name, _)| name.ends_with(extension))
        .map(|(name, path)| (name, fs::read(path).expect("a vector can be read")))
        .collect();
    assert!(!found.is_empty(), "no vectors *{extension} in {directory}");
    found.sort();
    found
}
