//! Stores in temporary directories, and paths for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::{Hash, PathInfo, StoreDir, StorePath};
use floe_hash::sha256;
use floe_store::tree::{TemporaryTree, remove_tree};
use floe_store::{StagedPath, StoreLayout, StoreWriter};

/// A directory that is removed at the end, sealed trees and all.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let dir = tempfile::tempdir().unwrap().keep();
        Scratch(fs::canonicalize(dir).unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn layout(&self) -> StoreLayout {
        StoreLayout::in_root(&self.0, StoreDir::default())
    }

    pub(crate) fn writer(&self) -> StoreWriter {
        StoreWriter::open(self.layout()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _: Result<(), floe_store::StoreError> = remove_tree(&self.0);
    }
}

/// The NAR of a file with those contents.
pub(crate) fn nar_of(contents: &[u8]) -> Vec<u8> {
    use floe_format::nar::write;
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::begin_file(&mut nar, false, contents.len() as u64);
    nar.extend_from_slice(contents);
    write::end_file(&mut nar, contents.len() as u64);
    nar
}

/// The NAR of a symbolic link.
pub(crate) fn nar_of_link(target: &Path) -> Vec<u8> {
    use floe_format::nar::write;
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::symlink(&mut nar, target.as_os_str().as_encoded_bytes());
    nar
}

/// A store path whose hash part is a digit repeated.
pub(crate) fn path(digit: char, name: &str) -> StorePath {
    let part: String = std::iter::repeat_n(digit, 32).collect();
    StorePath::parse(&format!("{part}-{name}")).unwrap()
}

pub(crate) fn info(path: &StorePath, nar: &[u8], references: &[&StorePath]) -> PathInfo {
    PathInfo {
        path: path.clone(),
        nar_hash: Hash::sha256(sha256(nar)),
        nar_size: nar.len() as u64,
        references: references
            .iter()
            .map(|reference| (*reference).clone())
            .collect(),
        deriver: None,
        signatures: BTreeSet::new(),
        ca: None,
        registration_time: Some(1),
        ultimate: false,
    }
}

/// A finished tree with a row to be.
pub(crate) fn stage(
    writer: &StoreWriter,
    path: &StorePath,
    references: &[&StorePath],
) -> StagedPath {
    let nar = nar_of(path.name().as_bytes());
    writer.add_temp_roots([path].into_iter()).unwrap();
    StagedPath {
        info: info(path, &nar, references),
        tree: unpack(writer, path, &nar),
    }
}

pub(crate) fn unpack(writer: &StoreWriter, path: &StorePath, nar: &[u8]) -> TemporaryTree {
    let mut tree = writer.tree_writer(path);
    tree.write(nar).unwrap();
    tree.finish().unwrap()
}

/// The names in a store directory, but for Nix's own.
pub(crate) fn names(layout: &StoreLayout) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&layout.real_store_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".links")
        .collect();
    names.sort();
    names
}

/// Says that a claim could not be tried here.
pub(crate) fn skip(name: &str, why: &str) {
    use std::io::Write as _;
    if let Some(file) = std::env::var_os("FLOE_TEST_SKIPS") {
        let file = fs::OpenOptions::new().append(true).create(true).open(file);
        writeln!(file.unwrap(), "{name}: {why}").unwrap();
    }
}
