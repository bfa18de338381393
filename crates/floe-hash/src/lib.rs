//! The hash functions of Nix, as streaming hashers.
//!
//! Only this crate depends on hash libraries, so that replacing one changes nothing else:
//!
//! - `ring` for SHA-256 and SHA-512. It selects the CPU's SHA instructions at run time and reaches
//!   their limit of 1.3 to 1.8 GB/s per core. On CPUs without them, its AVX assembly is nearly
//!   twice as fast as portable code (0.33 instead of 0.18 GB/s).
//! - [`lanes`] for up to 16 SHA-256 messages at once, on CPUs without SHA instructions. No
//!   well-kept library offers this.
//! - `sha1` and `md-5` for old content addresses.
//! - `blake3`, the reference implementation.

pub mod hash_pool;
pub mod idle_cores;
pub mod lanes;

use md5::Digest as _;
use ring::digest;

/// A hash algorithm that Nix supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashAlgorithm {
    /// MD5, 16 bytes. Insecure; only old content addresses use it.
    Md5,
    /// SHA-1, 20 bytes. Insecure; only old content addresses use it.
    Sha1,
    /// SHA-256, 32 bytes. The algorithm of all NAR hashes and store paths.
    Sha256,
    /// SHA-512, 64 bytes.
    Sha512,
    /// BLAKE3, 32 bytes. Experimental in Nix.
    Blake3,
}

impl HashAlgorithm {
    /// All algorithms, in the order of Nix.
    pub const ALL: [HashAlgorithm; 5] = [
        HashAlgorithm::Blake3,
        HashAlgorithm::Md5,
        HashAlgorithm::Sha1,
        HashAlgorithm::Sha256,
        HashAlgorithm::Sha512,
    ];

    /// Returns Nix's name, such as `sha256`.
    pub fn name(self) -> &'static str {
        match self {
            HashAlgorithm::Md5 => "md5",
            HashAlgorithm::Sha1 => "sha1",
            HashAlgorithm::Sha256 => "sha256",
            HashAlgorithm::Sha512 => "sha512",
            HashAlgorithm::Blake3 => "blake3",
        }
    }

    /// Returns the algorithm with Nix's name, if there is one.
    pub fn from_name(name: &str) -> Option<HashAlgorithm> {
        HashAlgorithm::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Returns the length of a digest, in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            HashAlgorithm::Md5 => 16,
            HashAlgorithm::Sha1 => 20,
            HashAlgorithm::Sha256 | HashAlgorithm::Blake3 => 32,
            HashAlgorithm::Sha512 => 64,
        }
    }
}

/// A streaming SHA-256 hasher.
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
    /// Makes a hasher for an empty message.
    pub fn new() -> Sha256 {
        Sha256::default()
    }

    /// Adds the next bytes of the message.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of the message.
    pub fn finish(self) -> [u8; 32] {
        array(&self.0.finish())
    }
}

/// Returns the SHA-256 digest of a message.
pub fn sha256(message: &[u8]) -> [u8; 32] {
    array(&digest::digest(&digest::SHA256, message))
}

/// Copies a digest, which must have 32 bytes.
fn array(digest: &digest::Digest) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// A streaming hasher for any algorithm.
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
    // Boxed, because its state has 2 KiB and the others have about 100 bytes.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// Makes a hasher for an empty message.
    pub fn new(algorithm: HashAlgorithm) -> Hasher {
        Hasher(match algorithm {
            HashAlgorithm::Md5 => HasherState::Md5(Default::default()),
            HashAlgorithm::Sha1 => HasherState::Sha1(Default::default()),
            HashAlgorithm::Sha256 => HasherState::Sha2(digest::Context::new(&digest::SHA256)),
            HashAlgorithm::Sha512 => HasherState::Sha2(digest::Context::new(&digest::SHA512)),
            HashAlgorithm::Blake3 => HasherState::Blake3(Default::default()),
        })
    }

    /// Adds the next bytes of the message.
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

    /// Returns the digest of the message, of [`HashAlgorithm::digest_len`] bytes.
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

    // The digests of "abc" in RFC 1321, in FIPS 180-4 and by the reference code of BLAKE3.
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
    fn digest_of_abc_is_the_published_one_for_every_cut() {
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
    fn names_and_digest_lengths_match_algorithms() {
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
