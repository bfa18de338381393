//! Hashing contents that mention the path that follows from the hash.

use floe_hash::Hasher;

use crate::hash::{Hash, HashAlgorithm};

/// Hashes contents as if they did not mention a given hash part.
///
/// Every occurrence counts as that many zero bytes; after the contents, the offset of each
/// occurrence is hashed as `|OFFSET`, so that contents with the hash part and contents with
/// zeros in its place differ. This is how the path of self-referential contents can follow from
/// the contents. Occurrences are found however the contents are cut into updates.
#[derive(Clone, Debug)]
pub struct ModuloHasher {
    hasher: Hasher,
    algorithm: HashAlgorithm,
    hash_part: Vec<u8>,
    // How far the window may move on, by the value of its last byte.
    skips: Box<[usize; 256]>,
    // Bytes not hashed yet. Between updates they are fewer than the hash part's, so that an
    // occurrence may still begin in them.
    pending: Vec<u8>,
    // Where `pending` starts in the contents.
    offset: u64,
    occurrences: Vec<u64>,
}

impl ModuloHasher {
    /// A stream that has seen no bytes. The hash part is the text to be ignored, commonly
    /// [`StorePath::hash_part`](crate::StorePath::hash_part); an empty one occurs nowhere.
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

    /// Feeds the next bytes of the contents.
    pub fn update(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_LEN) {
            self.pending.extend_from_slice(piece);
            self.zero_occurrences();
            let keep = self.hash_part.len().saturating_sub(1);
            self.hash_pending(self.pending.len().saturating_sub(keep));
        }
    }

    /// The hash of everything fed so far, offsets included.
    pub fn finish(self) -> Hash {
        self.finish_both().hash
    }

    /// The hash of everything fed so far, with and without offsets.
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

    /// Zeroes the occurrences in `pending` and notes where they are, leftmost first.
    fn zero_occurrences(&mut self) {
        let Some(&wanted) = self.hash_part.last() else {
            return;
        };
        let len = self.hash_part.len();
        let mut start = 0;
        // Most windows are passed over by a look at their last byte.
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

/// The hashes of contents modulo a hash part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuloHashes {
    /// The hash that Nix computes up to 2.16 and again after 2.34.
    pub hash: Hash,
    /// The hash that Nix 2.17 to 2.34 computes, which by mistake leave out the offsets. Content
    /// addresses that they gave to paths with self-references are around. Of the same
    /// contents with some occurrences replaced by zeros this hash is the same.
    pub without_offsets: Hash,
}

fn finish_hasher(algorithm: HashAlgorithm, hasher: Hasher) -> Hash {
    let mut bytes = [0; 64];
    for (to, from) in bytes.iter_mut().zip(hasher.finish()) {
        *to = from;
    }
    Hash::from_padded(algorithm, bytes)
}

/// How much is copied, searched and hashed at a time: little enough to stay in the CPU's cache.
pub(super) const PIECE_LEN: usize = 64 * 1024;
