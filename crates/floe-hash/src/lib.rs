//! The hash functions that Nix knows, as streams.
//!
//! This crate is the one place in floe that names a hash library, so that the choice can be
//! changed, measured and, later, replaced by our own SIMD code without touching anything else.
//! `ring` picks the CPU's SHA instructions at run time and then runs at their limit, as every
//! good library does (1.3 to 1.8 GB/s per core); on the many machines without them its assembly
//! for AVX is nearly twice as fast as portable code (0.33 against 0.18 GB/s). There [`lanes`] hash
//! up to 16 messages at once by our own code, since no well-kept library does. `sha1` and `md-5`
//! serve old content addresses, and `blake3` is the reference implementation.

pub mod lanes;

use md5::Digest as _;
use ring::digest;

/// A hash function that may stand in front of a hash in Nix's text forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashAlgorithm {
    /// MD5, 16 bytes. Broken; only old content addresses use it.
    Md5,
    /// SHA-1, 20 bytes. Broken; only old content addresses use it.
    Sha1,
    /// SHA-256, 32 bytes. The hash of every NAR and of every store path.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
    /// BLAKE3 with 32 bytes of output, experimental in Nix.
    Blake3,
}

impl HashAlgorithm {
    /// Every algorithm, in the order in which Nix lists them.
    pub const ALL: [HashAlgorithm; 5] = [
        HashAlgorithm::Blake3,
        HashAlgorithm::Md5,
        HashAlgorithm::Sha1,
        HashAlgorithm::Sha256,
        HashAlgorithm::Sha512,
    ];

    /// The name that Nix gives it in text, such as `sha256`.
    pub fn name(self) -> &'static str {
        match self {
            HashAlgorithm::Md5 => "md5",
            HashAlgorithm::Sha1 => "sha1",
            HashAlgorithm::Sha256 => "sha256",
            HashAlgorithm::Sha512 => "sha512",
            HashAlgorithm::Blake3 => "blake3",
        }
    }

    /// The algorithm with that name, if Nix knows one.
    pub fn from_name(name: &str) -> Option<HashAlgorithm> {
        HashAlgorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Length of a digest, in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            HashAlgorithm::Md5 => 16,
            HashAlgorithm::Sha1 => 20,
            HashAlgorithm::Sha256 | HashAlgorithm::Blake3 => 32,
            HashAlgorithm::Sha512 => 64,
        }
    }
}

/// A SHA-256 stream: `new`, any number of `update`s, `finish`.
#[derive(Clone)]
pub struct Sha256(digest::Context);

impl std::fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sha256")
    }
}

impl Default for Sha256 {
    fn default() -> Sha256 {
        Sha256(digest::Context::new(&digest::SHA256))
    }
}

impl Sha256 {
    /// A stream that has seen no bytes.
    pub fn new() -> Sha256 {
        Sha256::default()
    }

    /// Feeds the next bytes of the message.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything fed so far.
    pub fn finish(self) -> [u8; 32] {
        array(&self.0.finish())
    }
}

/// SHA-256 of one message.
pub fn sha256(message: &[u8]) -> [u8; 32] {
    array(&digest::digest(&digest::SHA256, message))
}

/// The bytes of a digest that is known to be 32 bytes long.
fn array(digest: &digest::Digest) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// A stream for any of the algorithms.
#[derive(Clone)]
pub struct Hasher(HasherState);

impl std::fmt::Debug for Hasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hasher")
    }
}

#[derive(Clone)]
enum HasherState {
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    /// SHA-256 or SHA-512.
    Sha2(digest::Context),
    // Its state is 2 KiB; the others are around 100 bytes.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// A stream that has seen no bytes.
    pub fn new(algorithm: HashAlgorithm) -> Hasher {
        Hasher(match algorithm {
            HashAlgorithm::Md5 => HasherState::Md5(Default::default()),
            HashAlgorithm::Sha1 => HasherState::Sha1(Default::default()),
            HashAlgorithm::Sha256 => HasherState::Sha2(digest::Context::new(&digest::SHA256)),
            HashAlgorithm::Sha512 => HasherState::Sha2(digest::Context::new(&digest::SHA512)),
            HashAlgorithm::Blake3 => HasherState::Blake3(Default::default()),
        })
    }

    /// Feeds the next bytes of the message.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            HasherState::Md5(state) => state.update(bytes),
            HasherState::Sha1(state) => state.update(bytes),
            HasherState::Sha2(state) => state.update(bytes),
            HasherState::Blake3(state) => {
                state.update(bytes);
            }
        }
    }

    /// The digest, [`HashAlgorithm::digest_len`] bytes long.
    pub fn finish(self) -> Vec<u8> {
        match self.0 {
            HasherState::Md5(state) => state.finalize().to_vec(),
            HasherState::Sha1(state) => state.finalize().to_vec(),
            HasherState::Sha2(state) => state.finish().as_ref().to_vec(),
            HasherState::Blake3(state) => state.finalize().as_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // The digests of "abc": RFC 1321, FIPS 180-4, and the BLAKE3 paper's reference code.
    const ABC: [(HashAlgorithm, &str); 5] = [
        (HashAlgorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
        (
            HashAlgorithm::Sha1,
            "a9993e364706816aba3e25717850c26c9cd0d89d",
        ),
        (
            HashAlgorithm::Sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            HashAlgorithm::Sha512,
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        (
            HashAlgorithm::Blake3,
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85",
        ),
    ];

    #[test]
    fn published_digests_of_abc_come_out_however_the_message_is_cut() {
        for (algorithm, expected) in ABC {
            for cut in 0..=3 {
                let mut hasher = Hasher::new(algorithm);
                hasher.update(&b"abc"[..cut]);
                hasher.update(&b"abc"[cut..]);
                assert_eq!(
                    hex(&hasher.finish()),
                    expected,
                    "{} cut at {cut}",
                    algorithm.name()
                );
            }
        }
        assert_eq!(hex(&sha256(b"abc")), ABC[2].1);
        let mut stream = Sha256::new();
        stream.update(b"ab");
        stream.update(b"c");
        assert_eq!(hex(&stream.finish()), ABC[2].1);
    }

    #[test]
    fn names_and_lengths_agree_with_the_digests() {
        for algorithm in HashAlgorithm::ALL {
            assert_eq!(HashAlgorithm::from_name(algorithm.name()), Some(algorithm));
            assert_eq!(
                Hasher::new(algorithm).finish().len(),
                algorithm.digest_len()
            );
        }
        assert_eq!(HashAlgorithm::from_name("sha224"), None);
    }
}
