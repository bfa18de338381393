//! Public keys, which verify signatures, and secret keys, which make them.

use std::fmt;
use std::sync::Arc;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::base64;
use crate::signature::{
    KeyOrSignature, PUBLIC_KEY_LEN, SEED_LEN, Signature, SignatureError, check_name, parse_named,
};

/// A public key with its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    name: Arc<str>,
    bytes: [u8; PUBLIC_KEY_LEN],
}

impl PublicKey {
    /// Parses `NAME:BASE64`, the form in the setting `trusted-public-keys`.
    ///
    /// Stricter than Nix, no text may follow the padding. It could be a second key, which is not
    /// trusted, after another separator than a space.
    pub fn parse(text: &str) -> Result<PublicKey, SignatureError> {
        let kind = KeyOrSignature::PublicKey;
        let (name, bytes) = parse_named(text, kind)?;
        let padding_and_rest = text[name.len()..].trim_start_matches(|c| c != '=');
        if !padding_and_rest.trim_matches('=').trim().is_empty() {
            let name = name.as_ref().into();
            return Err(SignatureError::TextAfterKey { name });
        }
        match bytes.try_into() {
            Ok(bytes) => Ok(PublicKey { name, bytes }),
            // A signature has the same length.
            Err(_) if SecretKey::parse(text).is_ok() => Err(SignatureError::OtherKey {
                kind,
                name: name.as_ref().into(),
            }),
            Err(bytes) => Err(SignatureError::KeyLength {
                kind,
                name: name.as_ref().into(),
                len: bytes.len(),
            }),
        }
    }

    /// Returns the name, which the signatures by this key have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the signature has the name of this key and is valid for the message.
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

/// A secret key with its name. Clones share the key pair.
#[derive(Clone)]
pub struct SecretKey {
    name: Arc<str>,
    seed: [u8; SEED_LEN],
    pair: Arc<Ed25519KeyPair>,
}

impl SecretKey {
    /// Parses the output of `nix key generate-secret`. A newline at the end is ignored.
    ///
    /// Stricter than Nix, the two halves must match. A signature with mismatched halves would
    /// reveal the secret half.
    pub fn parse(text: &str) -> Result<SecretKey, SignatureError> {
        let kind = KeyOrSignature::SecretKey;
        let (name, bytes) = parse_named(text, kind)?;
        let wrong_length = || SignatureError::KeyLength {
            kind,
            name: name.as_ref().into(),
            len: bytes.len(),
        };
        if bytes.len() == PUBLIC_KEY_LEN {
            let name = name.as_ref().into();
            return Err(SignatureError::OtherKey { kind, name });
        }
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

    /// Derives a key from 32 random bytes.
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

    /// Returns the text form, which contains the secret, without a newline.
    pub fn to_text(&self) -> String {
        let bytes = [self.seed.as_slice(), self.pair.public_key().as_ref()].concat();
        format!("{}:{}", self.name, base64::encode(&bytes))
    }

    /// Returns the name, which the signatures by this key have.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; PUBLIC_KEY_LEN];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
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
