//! The two halves of a key: one makes signatures, the other checks them.

use std::fmt;
use std::sync::Arc;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::base64;
use crate::signature::{
    KeyOrSignature, PUBLIC_KEY_LEN, SEED_LEN, Signature, SignatureError, check_name, parse_named,
};

/// The key that checks signatures.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    name: Arc<str>,
    bytes: [u8; PUBLIC_KEY_LEN],
}

impl PublicKey {
    /// Parses `name:base64`, as it stands in `trusted-public-keys`.
    pub fn parse(text: &str) -> Result<PublicKey, SignatureError> {
        let kind = KeyOrSignature::PublicKey;
        let (name, bytes) = parse_named(text, kind)?;
        match bytes.try_into() {
            Ok(bytes) => Ok(PublicKey { name, bytes }),
            Err(bytes) => Err(SignatureError::KeyLength {
                kind,
                name: name.as_ref().into(),
                len: bytes.len(),
            }),
        }
    }

    /// The name that signatures refer to it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this key, by this name, signed the message.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        signature.key_name == self.name
            && UnparsedPublicKey::new(&ED25519, &self.bytes)
                .verify(message, &signature.bytes)
                .is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.name, base64::encode(&self.bytes))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The key that makes signatures. A clone shares the key material.
#[derive(Clone)]
pub struct SecretKey {
    name: Arc<str>,
    seed: [u8; SEED_LEN],
    pair: Arc<Ed25519KeyPair>,
}

impl SecretKey {
    /// Parses what `nix key generate-secret` writes; a newline at the end does no harm.
    ///
    /// Nix does not look whether the public half belongs to the secret half. Signing with a pair
    /// that does not fit gives the secret away, so here it is an error.
    pub fn parse(text: &str) -> Result<SecretKey, SignatureError> {
        let kind = KeyOrSignature::SecretKey;
        let (name, bytes) = parse_named(text, kind)?;
        let wrong_length = || SignatureError::KeyLength {
            kind,
            name: name.as_ref().into(),
            len: bytes.len(),
        };
        let (seed, public) = bytes.split_first_chunk().ok_or_else(wrong_length)?;
        if public.len() != PUBLIC_KEY_LEN {
            return Err(wrong_length());
        }
        let mismatch = |_| SignatureError::KeyPairMismatch {
            name: name.as_ref().into(),
        };
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public).map_err(mismatch)?;
        Ok(SecretKey {
            seed: *seed,
            pair: Arc::new(pair),
            name,
        })
    }

    /// The key that grows out of 32 random bytes.
    pub fn from_seed(name: &str, seed: [u8; SEED_LEN]) -> Result<SecretKey, SignatureError> {
        let kind = KeyOrSignature::SecretKey;
        if name.is_empty() || name.contains(':') {
            return Err(SignatureError::Syntax { kind });
        }
        check_name(name, kind)?;
        let mismatch = |_| SignatureError::KeyPairMismatch { name: name.into() };
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(mismatch)?;
        Ok(SecretKey {
            name: name.into(),
            seed,
            pair: Arc::new(pair),
        })
    }

    /// The text to store, secret included, without a newline.
    pub fn to_text(&self) -> String {
        let bytes = [self.seed.as_slice(), self.pair.public_key().as_ref()].concat();
        format!("{}:{}", self.name, base64::encode(&bytes))
    }

    /// The name that signatures refer to it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; PUBLIC_KEY_LEN];
        for (to, from) in bytes.iter_mut().zip(self.pair.public_key().as_ref()) {
            *to = *from;
        }
        PublicKey {
            name: self.name.clone(),
            bytes,
        }
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> Signature {
        let bytes = self.pair.sign(message).as_ref().to_vec();
        Signature {
            key_name: self.name.clone(),
            bytes,
        }
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SecretKey({}:…)", self.name)
    }
}
