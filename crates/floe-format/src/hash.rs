//! A digest together with the function that made it, in all the text forms of Nix.

use std::fmt;

use crate::{base16, base64, nix32};

pub use floe_hash::HashAlgorithm;

/// Why a text or a byte string is not a hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// The name before the separator is no hash function that Nix knows.
    #[error("cannot parse hash {text:?}: unknown algorithm {algorithm:?}")]
    UnknownAlgorithm {
        /// The whole hash.
        text: String,
        /// The name in front of the separator.
        algorithm: String,
    },
    /// Neither the text nor the caller says which algorithm it is.
    #[error("cannot parse hash {0:?}: it does not say which algorithm it is of")]
    MissingAlgorithm(String),
    /// The text names another algorithm than the caller asked for.
    #[error("cannot parse hash {text:?} as {}: it is of another algorithm", wanted.name())]
    AlgorithmMismatch {
        /// The whole hash.
        text: String,
        /// The algorithm asked for.
        wanted: HashAlgorithm,
    },
    /// The length fits none of the encodings of such a hash.
    #[error("cannot parse hash {text:?}: wrong length for {}", algorithm.name())]
    TextLength {
        /// The hash without its prefix.
        text: String,
        /// The algorithm it should be of.
        algorithm: HashAlgorithm,
    },
    /// The decoded digest has the wrong length.
    #[error("cannot make a {} hash from {len} bytes", algorithm.name())]
    DigestLength {
        /// The algorithm it should be of.
        algorithm: HashAlgorithm,
        /// The number of bytes found.
        len: usize,
    },
    /// The hexadecimal form is damaged.
    #[error("cannot parse hash: {0}")]
    Base16(#[from] base16::Base16Error),
    /// The base-32 form is damaged.
    #[error("cannot parse hash: {0}")]
    Nix32(#[from] nix32::Nix32Error),
    /// The base-64 form is damaged.
    #[error("cannot parse hash: {0}")]
    Base64(#[from] base64::Base64Error),
}

/// A digest and its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash {
    algorithm: HashAlgorithm,
    // The digest, then zeros, so that the derived comparisons compare digests.
    bytes: [u8; DIGEST_LEN_MAX],
}

impl Hash {
    /// A hash from its digest, which must have the algorithm's length.
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

    /// The SHA-256 hash with this digest.
    pub fn sha256(digest: [u8; 32]) -> Hash {
        let mut bytes = [0; DIGEST_LEN_MAX];
        for (to, from) in bytes.iter_mut().zip(digest) {
            *to = from;
        }
        Hash {
            algorithm: HashAlgorithm::Sha256,
            bytes,
        }
    }

    /// A hash from a digest and the zeros behind it.
    pub(crate) fn from_padded(algorithm: HashAlgorithm, bytes: [u8; DIGEST_LEN_MAX]) -> Hash {
        Hash { algorithm, bytes }
    }

    /// The function that made it.
    pub fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    /// The digest itself.
    pub fn digest(&self) -> &[u8] {
        self.bytes
            .get(..self.algorithm.digest_len())
            .unwrap_or(&self.bytes)
    }

    /// The form of narinfos: `sha256:1abc…`.
    pub fn to_nix32(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.digest_nix32())
    }

    /// The form of the database and of store path preimages: `sha256:ba78…`.
    pub fn to_base16(&self) -> String {
        format!("{}:{}", self.algorithm.name(), self.digest_base16())
    }

    /// The form of the web's subresource integrity: `sha256-…=`.
    pub fn to_sri(&self) -> String {
        format!(
            "{}-{}",
            self.algorithm.name(),
            base64::encode(self.digest())
        )
    }

    /// The digest alone in Nix's base 32.
    pub fn digest_nix32(&self) -> String {
        nix32::encode(self.digest())
    }

    /// The digest alone in hexadecimal.
    pub fn digest_base16(&self) -> String {
        base16::encode(self.digest())
    }

    /// Parses a hash that names its algorithm, in any form.
    ///
    /// After `algorithm:` the length tells hexadecimal, base 32 and base 64 apart. After
    /// `algorithm-` (SRI) base 64 of any spelling may stand that decodes to the right length.
    /// BLAKE3 is always understood, whereas Nix wants its experimental feature enabled.
    pub fn parse_prefixed(text: &str) -> Result<Hash, HashError> {
        Hash::parse_any(text, None)
    }

    /// Parses a hash in any form; the text or the caller must name the algorithm, and if both
    /// do, they must agree.
    pub fn parse_any(text: &str, algorithm: Option<HashAlgorithm>) -> Result<Hash, HashError> {
        let split = |separator| text.split_once(separator);
        let (name, rest, is_sri) = match (split(':'), split('-')) {
            (Some((name, rest)), _) => (Some(name), rest, false),
            (None, Some((name, rest))) => (Some(name), rest, true),
            (None, None) => (None, text, false),
        };
        let named = name.map(|name| algorithm_named(text, name)).transpose()?;
        let algorithm = match (named, algorithm) {
            (Some(named), Some(wanted)) if named != wanted => {
                return Err(HashError::AlgorithmMismatch {
                    text: text.into(),
                    wanted,
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

    /// Parses a bare digest in hexadecimal, base 32 or base 64, told apart by the length.
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

/// The longest digest is that of SHA-512.
const DIGEST_LEN_MAX: usize = 64;

#[cfg(test)]
mod tests;
