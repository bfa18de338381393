//! The workload with hashes: all algorithms, and contents that refer to their own path.

use std::path::Path;

use anyhow::{Result, ensure};
use floe_format::content_address::ModuloHasher;
use floe_hash::{HashAlgorithm, Hasher};

use crate::Work;
use crate::inputs::{Numbers, path};

/// Hashes the same bytes with each algorithm, and once more without a hash part.
pub(crate) fn hash(_: &Path) -> Result<Work> {
    let contents = Numbers::new(3).text(LEN);
    let hash_part = path(0)?.hash_part();
    Ok(Box::new(move || {
        for algorithm in HashAlgorithm::ALL {
            let mut hasher = Hasher::new(algorithm);
            contents.chunks(CHUNK_LEN).for_each(|it| hasher.update(it));
            ensure!(
                hasher.finish().len() == algorithm.digest_len(),
                "{}",
                algorithm.name()
            );
        }
        let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, hash_part.as_str());
        contents.chunks(CHUNK_LEN).for_each(|it| hasher.update(it));
        let both = hasher.finish_both();
        ensure!(
            both.hash == both.without_offsets,
            "there is a self-reference"
        );
        Ok(())
    }))
}

/// The length of the hashed bytes.
const LEN: usize = 1024 * 1024;

/// The length of a piece, as a decoder returns it.
const CHUNK_LEN: usize = 64 * 1024;
