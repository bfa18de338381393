//! Signatures over path infos, and the Ed25519 keys that make and check them.
//!
//! All of them are written `name:base64`. The name says which key a signature needs.

use std::fmt;
use std::sync::Arc;

use crate::base64;

mod keys;
mod trusted_keys;

pub use keys::{PublicKey, SecretKey};
pub use trusted_keys::TrustedKeys;

/// Why a text is not a signature or a key. The text of a secret key is never part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no colon, or nothing in front of it or behind it.
    #[error("cannot parse {kind}: it is not of the form name:base64")]
    Syntax {
        /// What was being parsed.
        kind: KeyOrSignature,
    },
    /// The name has white space or control characters.
    #[error("cannot parse {kind}: its name has white space or control characters")]
    InvalidName {
        /// What was being parsed.
        kind: KeyOrSignature,
    },
    /// The part behind the colon is no base 64.
    #[error("cannot parse {kind} named {name:?}: {source}")]
    Base64 {
        /// What was being parsed.
        kind: KeyOrSignature,
        /// The name in front of the colon.
        name: String,
        /// What is wrong with it.
        source: base64::Base64Error,
    },
    /// The key has the wrong length.
    #[error("cannot parse {kind} named {name:?}: {len} bytes instead of {}", kind.key_len())]
    KeyLength {
        /// What was being parsed.
        kind: KeyOrSignature,
        /// The name in front of the colon.
        name: String,
        /// The number of bytes found.
        len: usize,
    },
    /// The two halves of a secret key do not belong together.
    #[error("cannot use secret key named {name:?}: its public half does not fit its secret half")]
    KeyPairMismatch {
        /// The name in front of the colon.
        name: String,
    },
}

/// What a [`SignatureError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrSignature {
    /// A [`Signature`].
    Signature,
    /// A [`PublicKey`].
    PublicKey,
    /// A [`SecretKey`].
    SecretKey,
}

impl KeyOrSignature {
    fn key_len(self) -> usize {
        match self {
            KeyOrSignature::Signature => SIGNATURE_LEN,
            KeyOrSignature::PublicKey => PUBLIC_KEY_LEN,
            KeyOrSignature::SecretKey => SECRET_KEY_LEN,
        }
    }
}

impl fmt::Display for KeyOrSignature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            KeyOrSignature::Signature => "signature",
            KeyOrSignature::PublicKey => "public key",
            KeyOrSignature::SecretKey => "secret key",
        })
    }
}

/// A signature and the name of the key that made it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    // In the order by which Nix sorts signatures.
    key_name: Arc<str>,
    bytes: Vec<u8>,
}

impl Signature {
    /// Parses `name:base64`.
    ///
    /// As in Nix, any number of bytes but zero will do here; only 64 ever verify. Beyond what
    /// Nix refuses, a key name with white space or control characters is refused, because the
    /// store's database separates signatures by spaces and a narinfo by newlines.
    pub fn parse(text: &str) -> Result<Signature, SignatureError> {
        let (key_name, bytes) = parse_named(text, KeyOrSignature::Signature)?;
        Ok(Signature { key_name, bytes })
    }

    /// The name of the key that is said to have made it.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// The signature itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}",
            self.key_name,
            base64::encode(&self.bytes)
        )
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The key of the official binary cache, which Nix trusts by default.
pub const CACHE_NIXOS_ORG_KEY: &str =
    "cache.nixos.org-1:6NCHdD59X431o0gWypbMrAURkbJ16ZPMQFGspcDShjY=";

/// Length of an Ed25519 signature.
pub const SIGNATURE_LEN: usize = 64;

/// Length of an Ed25519 public key.
pub const PUBLIC_KEY_LEN: usize = 32;

/// Length of the random half of a secret key.
pub const SEED_LEN: usize = 32;

/// Length of a secret key: the seed, then the public key.
pub const SECRET_KEY_LEN: usize = SEED_LEN + PUBLIC_KEY_LEN;

fn parse_named(text: &str, kind: KeyOrSignature) -> Result<(Arc<str>, Vec<u8>), SignatureError> {
    let (name, encoded) = text
        .split_once(':')
        .ok_or(SignatureError::Syntax { kind })?;
    if name.is_empty() {
        return Err(SignatureError::Syntax { kind });
    }
    check_name(name, kind)?;
    let bytes = base64::decode(encoded).map_err(|source| SignatureError::Base64 {
        kind,
        name: name.into(),
        source,
    })?;
    if bytes.is_empty() {
        return Err(SignatureError::Syntax { kind });
    }
    Ok((name.into(), bytes))
}

fn check_name(name: &str, kind: KeyOrSignature) -> Result<(), SignatureError> {
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SignatureError::InvalidName { kind });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
