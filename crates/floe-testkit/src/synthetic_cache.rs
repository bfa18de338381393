//! Binary caches of generated paths, with references of any shape.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_format::{Compression, Hash, NarInfo, PathInfo, StoreDir, StorePath};

use crate::nars;

/// Returns the store path with this number.
pub fn path(number: usize) -> StorePath {
    let digits = floe_format::nix32::encode(&floe_hash::sha256(&number.to_le_bytes())[..20]);
    StorePath::parse(&format!("{digits}-{number}")).unwrap()
}

/// Creates a cache of single-file paths. `references` returns the references of each number. The
/// file of number 0 is the smallest, so its NAR is fetched last.
pub fn create(directory: &Path, count: usize, references: impl Fn(usize) -> Vec<usize>) {
    fs::create_dir_all(directory.join("nar")).unwrap();
    fs::write(directory.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
    for number in 0..count {
        let contents = format!("{number}").repeat(if number == 0 { 1 } else { 10 });
        let nar = nars::file(contents.as_bytes());
        let info = PathInfo {
            path: path(number),
            nar_hash: Hash::sha256(floe_hash::sha256(&nar)),
            nar_size: nar.len() as u64,
            references: references(number).into_iter().map(path).collect(),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        let url = format!("nar/{number}.nar");
        fs::write(directory.join(&url), nar).unwrap();
        let (compression, file_hash, file_size) = (Compression::None, None, None);
        let narinfo = NarInfo {
            info,
            url,
            compression,
            file_hash,
            file_size,
        };
        let file = directory.join(format!("{}.narinfo", path(number).hash_part()));
        fs::write(file, narinfo.to_text(&StoreDir::default())).unwrap();
    }
}
