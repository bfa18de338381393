//! Hashes: a digest and its algorithm, in all the text forms of Nix.

use std::fmt;

use crate::{base16, base64, nix32};

pub use floe_hash::HashAlgorithm;

/// Reason why a text or a byte string is not a valid hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// The prefix names no algorithm that Nix knows.
    #[error("cannot parse hash {text:?}: unknown algorithm {algorithm:?}")]
    UnknownAlgorithm {
        /// The whole hash.
        text: String,
        /// The name before the separator.
        algorithm: String,
    },
    /// Neither the text nor the caller names the algorithm.
    #[error("cannot parse hash {0:?}: it has no algorithm prefix such as sha256:")]
    MissingAlgorithm(String),
    /// The prefix names another algorithm than the caller expects.
    #[error("cannot parse hash {text:?}: expected algorithm {}", expected.name())]
    AlgorithmMismatch {
        /// The whole hash.
        text: String,
        /// The algorithm that the caller expects.
        expected: HashAlgorithm,
    },
    /// The length is that of no encoding of a digest of the algorithm.
    #[error("cannot parse hash {text:?}: wrong length for {}", algorithm.name())]
    TextLength {
        /// The hash without its prefix.
        text: String,
        /// The algorithm of the hash.
        algorithm: HashAlgorithm,
    },
    /// The decoded digest has the wrong length.
    #[error("cannot make a {} hash of {len} bytes: wrong length", algorithm.name())]
    DigestLength {
        /// The algorithm of the hash.
        algorithm: HashAlgorithm,
        /// The number of bytes found.
        len: usize,
    },
    /// The digest is not valid hexadecimal.
    #[error("cannot parse hash: {0}")]
    Base16(#[from] base16::Base16Error),
    /// The digest is not valid nix32.
    #[error("cannot parse hash: {0}")]
    Nix32(#[from] nix32::Nix32Error),
    /// The digest is not valid base 64.
    #[error("cannot parse hash: {0}")]
    Base64(#[from] base64::Base64Error),
}

/// A digest and its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    algorithm: HashAlgorithm,
    // The digest and then zeros, so that the derived comparisons compare digests.
    bytes: [u8; DIGEST_LEN_MAX],
}

impl Hash {
    /// Makes a hash of a digest, whose length must be that of the algorithm.
    pub fn new(algorithm: HashAlgorithm, digest: &[u8]) -> Result<Hash, HashError> {
        let mut bytes = [0; DIGEST_LEN_MAX];
        match bytes.get_mut(..digest.len()) {
            Some(front) if digest.len() == algorithm.digest_len() => front.copy_from_slice(digest),
            _ => {
                return Err(HashError::DigestLength {
                    algorithm,
                    len: digest.len(),
                });
            }
        }
        Ok(Hash { algorithm, bytes })
    }

    /// Makes a SHA-256 hash of a digest.
    pub fn sha256(digest: [u8; 32]) -> Hash {
        let mut bytes = [0; DIGEST_LEN_MAX];
        bytes[..digest.len()].copy_from_slice(&digest);
        Hash {
            algorithm: HashAlgorithm::Sha256,
            bytes,
        }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// Returns the bytes of the digest.
    pub fn digest(&self) -> &[u8] {
        self.bytes
            .get(..self.algorithm.digest_len())
            .unwrap_or(&self.bytes)
    }

    /// Returns the form in narinfos: `sha256:` and nix32.
    pub fn to_nix32(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.digest_nix32())
    }

    /// Returns the form in the database and in the hashes of store paths: `sha256:` and
    /// hexadecimal.
    pub fn to_base16(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.digest_base16())
    }

    /// Returns the SRI form (Subresource Integrity of the W3C): `sha256-` and base 64.
    pub fn to_sri(&self) -> String {
        format!("{}-{}", self.algorithm.name(), self.digest_base64())
    }

    /// Returns the digest in nix32, without the algorithm.
    pub fn digest_nix32(&self) -> String {
        nix32::encode(self.digest())
    }

    /// Returns the digest in hexadecimal, without the algorithm.
    pub fn digest_base16(&self) -> String {
        base16::encode(self.digest())
    }

    /// Returns the digest in base 64, without the algorithm.
    pub fn digest_base64(&self) -> String {
        base64::encode(self.digest())
    }

    /// Parses a hash with its algorithm, in any form.
    ///
    /// After `algorithm:`, the length selects hexadecimal, nix32 or base 64. After `algorithm-`
    /// (SRI), every base 64 text is valid that decodes to the right number of bytes. BLAKE3 is
    /// always valid, whereas Nix requires an experimental feature for it.
    pub fn parse_prefixed(text: &str) -> Result<Hash, HashError> {
        Hash::parse_any(text, None)
    }

    /// Parses a hash in any form, with or without its algorithm.
    ///
    /// The text, the caller or both name the algorithm. If both do, they must agree.
    pub fn parse_any(text: &str, algorithm: Option<HashAlgorithm>) -> Result<Hash, HashError> {
        let split = |separator| text.split_once(separator);
        let (name, rest, is_sri) = match (split(':'), split('-')) {
            (Some((name, rest)), _) => (Some(name), rest, false),
            (None, Some((name, rest))) => (Some(name), rest, true),
            (None, None) => (None, text, false),
        };
        let named = name.map(|name| algorithm_named(text, name)).transpose()?;
        let algorithm = match (named, algorithm) {
            (Some(named), Some(expected)) if named != expected => {
                return Err(HashError::AlgorithmMismatch {
                    text: text.into(),
                    expected,
                });
            }
            (Some(algorithm), _) | (None, Some(algorithm)) => algorithm,
            (None, None) => return Err(HashError::MissingAlgorithm(text.into())),
        };
        if is_sri {
            Hash::new(algorithm, &base64::decode(rest)?)
        } else {
            Hash::parse_unprefixed(rest, algorithm)
        }
    }

    /// Parses a digest without its algorithm. The length selects hexadecimal, nix32 or base 64.
    pub fn parse_unprefixed(text: &str, algorithm: HashAlgorithm) -> Result<Hash, HashError> {
        let len = algorithm.digest_len();
        let digest = if text.len() == len * 2 {
            base16::decode(text)?
        } else if text.len() == nix32::encoded_len(len) {
            nix32::decode(text)?
        } else if text.len() == base64::encoded_len(len) {
            base64::decode(text)?
        } else {
            return Err(HashError::TextLength {
                text: text.into(),
                algorithm,
            });
        };
        Hash::new(algorithm, &digest)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_nix32())
    }
}

fn algorithm_named(text: &str, name: &str) -> Result<HashAlgorithm, HashError> {
    HashAlgorithm::from_name(name).ok_or_else(|| HashError::UnknownAlgorithm {
        text: text.into(),
        algorithm: name.into(),
    })
}

/// Length of the longest digest, which is that of SHA-512.
const DIGEST_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests;
