//! The paths that the conformance tests use, as a binary cache in a directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use floe_format::nar::write;
use floe_format::{CacheInfo, Compression, Hash, NarInfo, PathInfo, StoreDir, StorePath};

use crate::{XorShift, nars, synthetic_cache};

/// A path with its NAR.
#[derive(Clone, Debug)]
pub struct KnownPath {
    /// The narinfo of the path in an uncompressed cache.
    pub narinfo: NarInfo,
    /// The NAR.
    pub nar: Vec<u8>,
}

impl KnownPath {
    /// Returns the store path.
    pub fn path(&self) -> &StorePath {
        &self.narinfo.info.path
    }
}

/// A closure of small, empty, odd and large paths, and the binary cache that holds it.
#[derive(Debug)]
pub struct Contents {
    /// The directory of the cache.
    pub directory: PathBuf,
    /// The paths, references before their referrers.
    pub paths: Vec<KnownPath>,
}

impl Contents {
    /// Creates the cache in a directory.
    pub fn create(directory: &Path) -> Contents {
        fs::create_dir_all(directory.join("nar")).unwrap();
        let info = CacheInfo {
            store_dir: StoreDir::default(),
            want_mass_query: true,
            priority: None,
        };
        fs::write(directory.join("nix-cache-info"), info.to_text()).unwrap();
        let paths: Vec<KnownPath> = nars().into_iter().enumerate().map(known_path).collect();
        for KnownPath { narinfo, nar } in &paths {
            fs::write(directory.join(&narinfo.url), nar).unwrap();
            let file = format!("{}.narinfo", narinfo.info.path.hash_part());
            fs::write(directory.join(file), narinfo.to_text(&StoreDir::default())).unwrap();
        }
        Contents {
            directory: directory.to_owned(),
            paths,
        }
    }

    /// Returns all store paths.
    pub fn store_paths(&self) -> Vec<StorePath> {
        self.paths
            .iter()
            .map(|known| known.path().clone())
            .collect()
    }

    /// Returns a path that is not in the contents.
    pub fn absent(&self) -> StorePath {
        synthetic_cache::path(self.paths.len() + 1000)
    }
}

/// Makes a path that refers to itself and to all paths before it.
fn known_path((number, nar): (usize, Vec<u8>)) -> KnownPath {
    let info = PathInfo {
        path: synthetic_cache::path(number),
        nar_hash: Hash::sha256(floe_hash::sha256(&nar)),
        nar_size: nar.len() as u64,
        references: (0..=number).map(synthetic_cache::path).collect(),
        deriver: None,
        signatures: BTreeSet::new(),
        ca: None,
        registration_time: None,
        ultimate: false,
    };
    let narinfo = NarInfo {
        url: format!("nar/{number}.nar"),
        compression: Compression::None,
        file_hash: Some(info.nar_hash),
        file_size: Some(info.nar_size),
        info,
    };
    KnownPath { narinfo, nar }
}

fn nars() -> Vec<Vec<u8>> {
    let mut random = XorShift(43);
    let bytes = (0..LARGE_LEN).map(|_| u8::try_from(random.below(256)).unwrap());
    let large: Vec<u8> = bytes.collect();
    let executable = |nar: &mut Vec<u8>| {
        write::begin_file(nar, true, 2);
        nar.extend_from_slice(b"#!");
        write::end_file(nar, 2);
    };
    let link = |nar: &mut Vec<u8>| write::symlink(nar, b"../\xff");
    let empty = |nar: &mut Vec<u8>| nars::directory_node(nar, &[]);
    vec![
        nars::file(b""),
        nars::directory(&[]),
        nars::symlink(Path::new("/nowhere")),
        nars::file(b"small"),
        nars::directory(&[
            (b" \n", &executable),
            (b"..x", &link),
            (b"empty", &empty),
            (b"\xfe", &executable),
        ]),
        nars::file(&large),
    ]
}

/// More than any body that is fetched whole, and than one chunk.
const LARGE_LEN: usize = 3 * 1024 * 1024;
