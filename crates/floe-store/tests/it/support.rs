//! Stores in temporary directories, and paths for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_format::{Hash, PathInfo, StoreDir, StorePath};
use floe_hash::sha256;
use floe_store::tree::TemporaryTree;
use floe_store::{StagedPath, StoreLayout, StoreWriter};

pub(crate) use floe_testkit::nars::{file as nar_of, symlink as nar_of_link};
pub(crate) use floe_testkit::skip;

/// A temporary directory with a store.
pub(crate) struct Scratch(floe_testkit::Scratch);

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch(floe_testkit::scratch())
    }

    /// Creates it below the target directory, which lies on a disk more often than temporary files.
    pub(crate) fn in_target_directory() -> Scratch {
        Scratch(floe_testkit::scratch_in(Path::new(env!(
            "CARGO_TARGET_TMPDIR"
        ))))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn layout(&self) -> StoreLayout {
        StoreLayout::in_root(self.path(), StoreDir::default())
    }

    pub(crate) fn writer(&self) -> StoreWriter {
        StoreWriter::open(self.layout()).unwrap()
    }
}

/// A store path whose hash part repeats one digit.
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

/// A complete tree with the information to register.
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

/// The names in a store directory, without those that Nix reserves.
pub(crate) fn names(layout: &StoreLayout) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(&layout.real_store_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".links")
        .collect();
    names.sort();
    names
}
