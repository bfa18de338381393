//! SHA-256 of many messages at once: each lane of the CPU's widest vectors hashes one message.
//!
//! A message must be hashed block by block, because each block needs the result of the block
//! before it. Different messages are independent of each other. With vectors of 16 lanes, 16
//! messages take three times as long as one message, on a CPU without SHA instructions.
//!
//! The function is that of FIPS 180-4. The portable code is from `sha2`.

#[cfg(target_arch = "x86_64")]
mod avx512;

use sha2::block_api::compress256;

/// Number of messages that are hashed at once.
pub const LANES: usize = 16;

/// The least number of messages to hash in lanes. A single one takes at most as long in portable
/// code as together with 15 unused lanes.
const LANES_MIN: usize = 2;

/// The first 32 bits of the fractional parts of the square roots of the first 8 primes.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

type Block = [u8; 64];

/// A streaming SHA-256 hasher of one message, for [`update`].
#[derive(Clone, Debug)]
pub struct Lane {
    state: [u32; 8],
    // The first `tail_len` bytes of the next block.
    tail: Block,
    tail_len: usize,
    // Length of the message so far, in bytes.
    len: u64,
}

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            state: INITIAL,
            tail: [0; 64],
            tail_len: 0,
            len: 0,
        }
    }
}

/// Returns whether hashing in lanes is faster on this CPU than hashing one message at a time.
///
/// This is the case if the CPU has vectors of 16 lanes and no SHA instructions.
pub fn are_preferred() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        avx512::is_supported() && !std::arch::is_x86_feature_detected!("sha")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

impl Lane {
    /// Returns the digest of the message.
    pub fn finish(mut self) -> [u8; 32] {
        let bits = self.len.wrapping_mul(8).to_be_bytes();
        // The padding of SHA-256: a one bit, zeros, and the length in bits in the last 8 bytes.
        let mut end = [0; 128];
        let len = if self.tail_len < 56 { 64 } else { 128 };
        end[..self.tail_len].copy_from_slice(&self.tail[..self.tail_len]);
        end[self.tail_len] = 0x80;
        end[len - 8..len].copy_from_slice(&bits);
        let (blocks, _) = end[..len].as_chunks::<64>();
        compress256(&mut self.state, blocks);
        let mut digest = [0; 32];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }

    /// Adds bytes to the message and returns the whole blocks that are still to be hashed.
    ///
    /// The bytes that complete the block in `tail` are hashed here. The bytes after the last whole
    /// block become the new `tail`.
    fn take_whole_blocks<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [Block] {
        self.len = self.len.wrapping_add(bytes.len() as u64);
        if self.tail_len > 0 {
            let taken = bytes.len().min(64 - self.tail_len);
            self.tail[self.tail_len..self.tail_len + taken].copy_from_slice(&bytes[..taken]);
            self.tail_len += taken;
            bytes = &bytes[taken..];
            if self.tail_len < 64 {
                return &[];
            }
            compress256(&mut self.state, &[self.tail]);
        }
        let (blocks, rest) = bytes.as_chunks::<64>();
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_len = rest.len();
        blocks
    }
}

/// Adds the next bytes to each message.
///
/// There may be more messages than lanes. Lanes are used best if the parts are of similar length.
pub fn update(parts: &mut [(&mut Lane, &[u8])]) {
    let mut work: Vec<(&mut [u32; 8], &[Block])> = parts
        .iter_mut()
        .filter_map(|(lane, bytes)| {
            let blocks = lane.take_whole_blocks(bytes);
            (!blocks.is_empty()).then_some((&mut lane.state, blocks))
        })
        .collect();
    while are_supported() && work.len() >= LANES_MIN {
        // The longest messages first. Otherwise one of them would be hashed alone at the end.
        work.sort_by_key(|(_, blocks)| std::cmp::Reverse(blocks.len()));
        let width = work.len().min(LANES);
        let count = work[width - 1].1.len();
        compress_lanes(&mut work[..width], count);
        work.retain(|(_, blocks)| !blocks.is_empty());
    }
    for (state, blocks) in work {
        compress256(state, blocks);
    }
}

/// Returns whether this CPU has vectors of 16 lanes.
fn are_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        avx512::is_supported()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Hashes `count` blocks of each message, and removes them. There must be 1 to 16 messages.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "only x86_64 has code for lanes")
)]
fn compress_lanes(work: &mut [(&mut [u32; 8], &[Block])], count: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let mut states = [[0; LANES]; 8];
        // Unused lanes hash the first message again, and their result is ignored.
        let first = work[0].1;
        let blocks: [&[Block]; LANES] =
            std::array::from_fn(|lane| &work.get(lane).map_or(first, |part| part.1)[..count]);
        for (lane, (state, _)) in work.iter().enumerate() {
            for (word, value) in state.iter().enumerate() {
                states[word][lane] = *value;
            }
        }
        avx512::compress(&mut states, &blocks, count);
        for (lane, (state, blocks)) in work.iter_mut().enumerate() {
            for (word, value) in state.iter_mut().enumerate() {
                *value = states[word][lane];
            }
            *blocks = &blocks[count..];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sha256;

    fn hashed(messages: &[Vec<u8>], cut: usize) -> Vec<[u8; 32]> {
        let mut lanes = vec![Lane::default(); messages.len()];
        for end in [false, true] {
            let mut parts: Vec<(&mut Lane, &[u8])> = lanes
                .iter_mut()
                .zip(messages)
                .map(|(lane, message)| {
                    let (begin, rest) = message.split_at(cut.min(message.len()));
                    (lane, if end { rest } else { begin })
                })
                .collect();
            update(&mut parts);
        }
        lanes.into_iter().map(Lane::finish).collect()
    }

    fn message(len: usize, seed: usize) -> Vec<u8> {
        (0..len)
            .map(|at| (at * 31 + seed * 7 + at / 251) as u8)
            .collect()
    }

    #[test]
    fn message_of_every_length_has_sha256_digest() {
        for len in 0..300 {
            let messages: Vec<Vec<u8>> = (0..16).map(|seed| message(len + seed, seed)).collect();
            let expected: Vec<[u8; 32]> = messages.iter().map(|it| sha256(it)).collect();
            assert_eq!(hashed(&messages, len / 3), expected, "{len}");
        }
    }

    #[test]
    fn more_messages_than_lanes_have_sha256_digests() {
        let lens = [0, 1, 63, 64, 65, 5000, 100_000, 70_000, 64 * 1000];
        let messages: Vec<Vec<u8>> = (0..41)
            .map(|seed| message(lens[seed % lens.len()] + seed, seed))
            .collect();
        let expected: Vec<[u8; 32]> = messages.iter().map(|it| sha256(it)).collect();
        assert_eq!(hashed(&messages, 4096), expected);
    }

    #[test]
    fn preferred_lanes_are_supported() {
        assert!(!are_preferred() || are_supported());
    }

    proptest! {
        #[test]
        fn any_messages_and_cut_have_sha256_digests(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..24),
            cut in 0_usize..2000,
        ) {
            let expected: Vec<[u8; 32]> = messages.iter().map(|it| sha256(it)).collect();
            prop_assert_eq!(hashed(&messages, cut), expected);
        }
    }
}
