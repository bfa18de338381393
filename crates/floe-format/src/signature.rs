//! Signatures of path infos, and the Ed25519 keys that make and verify them.
//!
//! Their text form is `NAME:BASE64`, where the name identifies the key.

use std::fmt;
use std::sync::Arc;

use crate::base64;

mod junk;
mod keys;
mod trusted_keys;

pub use junk::OTHER_SIGNATURES_LEN_MAX;
pub(crate) use junk::drop_junk;
pub use keys::{PublicKey, SecretKey};
pub use trusted_keys::TrustedKeys;

/// Reason why a text is not a valid signature or key. No error contains a secret key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The text has no colon, or nothing before or after it.
    #[error("cannot parse {kind}: expected NAME:BASE64")]
    Syntax {
        /// The kind of text.
        kind: KeyOrSignature,
    },
    /// The name has white space or control characters.
    #[error("cannot parse {kind}: its name has white space or control characters")]
    InvalidName {
        /// The kind of text.
        kind: KeyOrSignature,
    },
    /// The part after the colon is not valid base 64.
    #[error("cannot parse {kind} {name:?}: {source}")]
    Base64 {
        /// The kind of text.
        kind: KeyOrSignature,
        /// The name before the colon.
        name: String,
        /// The error in the base 64 text.
        source: base64::Base64Error,
    },
    /// The key has the wrong length.
    #[error("cannot parse {kind} {name:?}: it has {len} bytes instead of {}", kind.key_len())]
    KeyLength {
        /// The kind of text.
        kind: KeyOrSignature,
        /// The name before the colon.
        name: String,
        /// The number of bytes found.
        len: usize,
    },
    /// A text follows the key.
    #[error("cannot parse public key {name:?}: {}", self.reason())]
    TextAfterKey {
        /// The name before the colon.
        name: String,
    },
    /// A secret key stands in the place of a public key, or a public key in that of a secret key.
    #[error("cannot use {name:?} as a {kind}: {}", self.reason())]
    OtherKey {
        /// The kind of key that is needed.
        kind: KeyOrSignature,
        /// The name before the colon.
        name: String,
    },
    /// The public half of a secret key does not belong to its secret half.
    #[error("cannot use secret key {name:?}: its public half does not match its secret half")]
    KeyPairMismatch {
        /// The name before the colon.
        name: String,
    },
}

impl SignatureError {
    /// Returns the cause and its remedy in words that repeat nothing of the text, which may be
    /// secret.
    pub fn reason(&self) -> &'static str {
        match self {
            SignatureError::OtherKey {
                kind: KeyOrSignature::PublicKey,
                ..
            } => "it is a secret key; try its public key, which floe key public prints",
            SignatureError::OtherKey { .. } => "it is a public key; try the secret key of the pair",
            SignatureError::TextAfterKey { .. } => "a text follows it; try spaces between keys",
            SignatureError::KeyPairMismatch { .. } => {
                "its public half does not match its secret half"
            }
            SignatureError::Syntax { kind }
            | SignatureError::InvalidName { kind }
            | SignatureError::Base64 { kind, .. }
            | SignatureError::KeyLength { kind, .. } => kind.syntax(),
        }
    }
}

/// The kind of text that a [`SignatureError`] is about.
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
    fn syntax(self) -> &'static str {
        match self {
            KeyOrSignature::Signature => "it must look like NAME:BASE64",
            KeyOrSignature::PublicKey => {
                "it must look like NAME:BASE64; floe key public makes it from a secret key"
            }
            KeyOrSignature::SecretKey => {
                "it is not one key of the form NAME:BASE64; make one with floe key generate NAME"
            }
        }
    }

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

/// A signature and the name of its key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    // The fields are in the order by which Nix sorts signatures.
    key_name: Arc<str>,
    bytes: Vec<u8>,
}

impl Signature {
    /// Parses `NAME:BASE64`.
    ///
    /// As in Nix, a signature of any length but zero parses, although only 64 bytes can verify.
    /// Stricter than Nix, a name must not have white space or control characters. The store's
    /// database separates signatures by spaces, and a narinfo separates them by newlines.
    pub fn parse(text: &str) -> Result<Signature, SignatureError> {
        let (key_name, bytes) = parse_named(text, KeyOrSignature::Signature)?;
        Ok(Signature { key_name, bytes })
    }

    /// Returns the name of the key. It is a claim until the signature is verified.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// Returns the bytes of the signature.
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

/// The public key of cache.nixos.org, which Nix trusts by default.
pub const CACHE_NIXOS_ORG_KEY: &str =
    "cache.nixos.org-1:6NCHdD59X431o0gWypbMrAURkbJ16ZPMQFGspcDShjY=";

/// Length of an Ed25519 signature, in bytes.
pub const SIGNATURE_LEN: usize = 64;

/// Length of an Ed25519 public key, in bytes.
pub const PUBLIC_KEY_LEN: usize = 32;

/// Length of the secret half of a secret key, in bytes.
pub const SEED_LEN: usize = 32;

/// Length of a secret key, in bytes: the seed and the public key.
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
