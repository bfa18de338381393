//! Hashing of contents that refer to their own store path.

use floe_hash::Hasher;

use crate::hash::{Hash, HashAlgorithm};

/// A hasher that replaces every occurrence of a hash part by zeros, like Nix's `HashModuloSink`.
///
/// The path of contents with self-references follows from their hash, so the hash must not depend
/// on the path. After the contents, the hasher adds the offset of each occurrence as `|OFFSET`.
/// Contents with the hash part and contents with zeros in its place therefore have different
/// hashes. The result does not depend on how the contents are cut into updates.
#[derive(Clone, Debug)]
pub struct ModuloHasher {
    hasher: Hasher,
    algorithm: HashAlgorithm,
    hash_part: Vec<u8>,
    // The Boyer-Moore-Horspool table: the distance to the next window that can match, by the
    // value of the last byte in the current window.
    skips: Box<[usize; 256]>,
    // Bytes not hashed yet. An occurrence may still start in them. Between updates, they are
    // fewer than the bytes of the hash part.
    pending: Vec<u8>,
    // The offset of `pending` in the contents.
    offset: u64,
    occurrences: Vec<u64>,
}

impl ModuloHasher {
    /// Makes a hasher for contents that may contain `hash_part`.
    ///
    /// The argument is usually [`StorePath::hash_part`](crate::StorePath::hash_part). An empty
    /// text occurs nowhere.
    pub fn new(algorithm: HashAlgorithm, hash_part: &str) -> ModuloHasher {
        let hash_part = hash_part.as_bytes().to_vec();
        let mut skips = Box::new([hash_part.len(); 256]);
        let all_but_last = hash_part.len().saturating_sub(1);
        for (index, &byte) in hash_part.iter().take(all_but_last).enumerate() {
            if let Some(skip) = skips.get_mut(usize::from(byte)) {
                *skip = all_but_last - index;
            }
        }
        ModuloHasher {
            hasher: Hasher::new(algorithm),
            algorithm,
            hash_part,
            skips,
            pending: Vec::new(),
            offset: 0,
            occurrences: Vec::new(),
        }
    }

    /// Adds the next bytes of the contents.
    pub fn update(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_LEN) {
            self.pending.extend_from_slice(piece);
            self.zero_occurrences();
            let keep = self.hash_part.len().saturating_sub(1);
            self.hash_pending(self.pending.len().saturating_sub(keep));
        }
    }

    /// Returns the hash of the contents and of the offsets.
    pub fn finish(self) -> Hash {
        self.finish_both().hash
    }

    /// Returns the hash with and without the offsets.
    pub fn finish_both(mut self) -> ModuloHashes {
        self.hash_pending(self.pending.len());
        let without_offsets = finish_hasher(self.algorithm, self.hasher.clone());
        for offset in &self.occurrences {
            self.hasher.update(format!("|{offset}").as_bytes());
        }
        ModuloHashes {
            hash: finish_hasher(self.algorithm, self.hasher),
            without_offsets,
        }
    }

    /// Replaces the occurrences in `pending` by zeros and records their offsets.
    ///
    /// Of overlapping occurrences, only the first counts.
    fn zero_occurrences(&mut self) {
        let Some(&wanted) = self.hash_part.last() else {
            return;
        };
        let len = self.hash_part.len();
        let mut start = 0;
        // The last byte of a window usually rules out several windows at once.
        while let Some(&last) = self.pending.get(start + len - 1) {
            match self.pending.get_mut(start..start + len) {
                Some(window) if last == wanted && window == self.hash_part => {
                    window.fill(0);
                    self.occurrences.push(self.offset + start as u64);
                    start += len;
                }
                _ => start += self.skips.get(usize::from(last)).copied().unwrap_or(1),
            }
        }
    }

    fn hash_pending(&mut self, len: usize) {
        if let Some(front) = self.pending.get(..len) {
            self.hasher.update(front);
            self.pending.drain(..len);
            self.offset += len as u64;
        }
    }
}

/// The two hashes of contents modulo a hash part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuloHashes {
    /// The hash of Nix up to 2.16 and after 2.34, which covers the offsets.
    pub hash: Hash,
    /// The hash of Nix 2.17 to 2.34, which omit the offsets by mistake.
    ///
    /// Binary caches hold content addresses made by these versions. The hash stays the same if
    /// zeros replace some of the occurrences, so it does not identify the contents.
    pub without_offsets: Hash,
}

fn finish_hasher(algorithm: HashAlgorithm, hasher: Hasher) -> Hash {
    Hash::new(algorithm, &hasher.finish()).expect("the length is that of the algorithm")
}

/// Number of bytes that are copied, searched and hashed at a time. They fit into the CPU's cache.
pub(super) const PIECE_LEN: usize = 64 * 1024;
