//! Signatures over path infos, and the Ed25519 keys that make and check them.
//!
//! All of them are written `name:base64`. The name says which key a signature needs.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fmt;
use std::sync::Arc;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::base64;

/// Why a text is not a signature or a key. The text of a secret key is never part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// There is no colon, or nothing in front of it or behind it.
    #[error("cannot parse {kind}: it is not of the form name:base64")]
    Form {
        /// What was being parsed.
        kind: Kind,
    },
    /// The name has white space or control characters.
    #[error("cannot parse {kind}: its name has white space or control characters")]
    Name {
        /// What was being parsed.
        kind: Kind,
    },
    /// The part behind the colon is no base 64.
    #[error("cannot parse {kind} named {name:?}: {source}")]
    Base64 {
        /// What was being parsed.
        kind: Kind,
        /// The name in front of the colon.
        name: String,
        /// What is wrong with it.
        source: base64::Base64Error,
    },
    /// The key has the wrong length.
    #[error("cannot parse {kind} named {name:?}: {len} bytes instead of {}", kind.key_len())]
    KeyLength {
        /// What was being parsed.
        kind: Kind,
        /// The name in front of the colon.
        name: String,
        /// The number of bytes found.
        len: usize,
    },
    /// The two halves of a secret key do not belong together.
    #[error("cannot use secret key named {name:?}: its public half does not fit its secret half")]
    Halves {
        /// The name in front of the colon.
        name: String,
    },
}

/// What a [`SignatureError`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A [`Signature`].
    Signature,
    /// A [`PublicKey`].
    PublicKey,
    /// A [`SecretKey`].
    SecretKey,
}

impl Kind {
    fn key_len(self) -> usize {
        match self {
            Kind::Signature => SIGNATURE_LEN,
            Kind::PublicKey => PUBLIC_KEY_LEN,
            Kind::SecretKey => SECRET_KEY_LEN,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Kind::Signature => "signature",
            Kind::PublicKey => "public key",
            Kind::SecretKey => "secret key",
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
        let (key_name, bytes) = parse_named(text, Kind::Signature)?;
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

/// The key that checks signatures.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    name: Arc<str>,
    bytes: [u8; PUBLIC_KEY_LEN],
}

impl PublicKey {
    /// Parses `name:base64`, as it stands in `trusted-public-keys`.
    pub fn parse(text: &str) -> Result<PublicKey, SignatureError> {
        let kind = Kind::PublicKey;
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
        let kind = Kind::SecretKey;
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
        let halves = |_| SignatureError::Halves {
            name: name.as_ref().into(),
        };
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, public).map_err(halves)?;
        Ok(SecretKey {
            seed: *seed,
            pair: Arc::new(pair),
            name,
        })
    }

    /// The key that grows out of 32 random bytes.
    pub fn from_seed(name: &str, seed: [u8; SEED_LEN]) -> Result<SecretKey, SignatureError> {
        let kind = Kind::SecretKey;
        if name.is_empty() || name.contains(':') {
            return Err(SignatureError::Form { kind });
        }
        check_name(name, kind)?;
        let halves = |_| SignatureError::Halves { name: name.into() };
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(halves)?;
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

/// The keys whose signatures count, by name.
///
/// As in Nix, the first key of a name stays: a later one of the same name changes nothing.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct TrustedKeys(BTreeMap<Arc<str>, PublicKey>);

impl TrustedKeys {
    /// No keys: nothing is trusted.
    pub fn new() -> TrustedKeys {
        TrustedKeys::default()
    }

    /// Parses keys separated by white space, as `trusted-public-keys` has them.
    pub fn parse_list(text: &str) -> Result<TrustedKeys, SignatureError> {
        text.split_ascii_whitespace()
            .map(PublicKey::parse)
            .collect()
    }

    /// Trusts a key, unless one of its name is trusted already. Says whether it was added.
    pub fn insert(&mut self, key: PublicKey) -> bool {
        match self.0.entry(key.name.clone()) {
            btree_map::Entry::Vacant(entry) => {
                entry.insert(key);
                true
            }
            btree_map::Entry::Occupied(_) => false,
        }
    }

    /// The names of the keys, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }

    /// The keys, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.values()
    }

    /// Whether no key is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the signature is by one of the keys and over this message.
    ///
    /// A signature of a wrong length is merely not valid here; Nix stops with an error at it if
    /// it bears a trusted name.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        self.0
            .get(signature.key_name())
            .is_some_and(|key| key.verify(message, signature))
    }
}

impl Extend<PublicKey> for TrustedKeys {
    fn extend<I: IntoIterator<Item = PublicKey>>(&mut self, keys: I) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl FromIterator<PublicKey> for TrustedKeys {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> TrustedKeys {
        let mut trusted = TrustedKeys::new();
        trusted.extend(keys);
        trusted
    }
}

impl IntoIterator for TrustedKeys {
    type Item = PublicKey;
    type IntoIter = btree_map::IntoValues<Arc<str>, PublicKey>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_values()
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

fn parse_named(text: &str, kind: Kind) -> Result<(Arc<str>, Vec<u8>), SignatureError> {
    let (name, encoded) = text.split_once(':').ok_or(SignatureError::Form { kind })?;
    if name.is_empty() {
        return Err(SignatureError::Form { kind });
    }
    check_name(name, kind)?;
    let bytes = base64::decode(encoded).map_err(|source| SignatureError::Base64 {
        kind,
        name: name.into(),
        source,
    })?;
    if bytes.is_empty() {
        return Err(SignatureError::Form { kind });
    }
    Ok((name.into(), bytes))
}

fn check_name(name: &str, kind: Kind) -> Result<(), SignatureError> {
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(SignatureError::Name { kind });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(name: &str) -> SecretKey {
        SecretKey::from_seed(name, [7; SEED_LEN]).unwrap()
    }

    #[test]
    fn a_signature_verifies_only_with_its_key_name_and_message() {
        let signature = key("a").sign(b"message");
        assert!(key("a").public().verify(b"message", &signature));
        assert!(!key("a").public().verify(b"massage", &signature));
        assert!(
            !key("b").public().verify(b"message", &signature),
            "the name differs"
        );
        let other = SecretKey::from_seed("a", [8; SEED_LEN]).unwrap();
        assert!(
            !other.public().verify(b"message", &signature),
            "the key differs"
        );
        let short = Signature::parse("a:AAAA").unwrap();
        assert!(!key("a").public().verify(b"message", &short));
    }

    #[test]
    fn a_secret_key_survives_its_text_and_a_newline() {
        let key = key("cache-1");
        let parsed = SecretKey::parse(&format!("{}\n", key.to_text())).unwrap();
        assert_eq!(parsed.to_text(), key.to_text());
        assert_eq!(parsed.public(), key.public());
        assert_eq!(parsed.name(), "cache-1");
    }

    #[test]
    fn a_secret_key_is_not_shown_by_debug_or_errors() {
        let key = key("cache-1");
        assert_eq!(format!("{key:?}"), "SecretKey(cache-1:…)");
        let text = key.to_text();
        let (_, secret) = text.split_once(':').unwrap();
        let damaged = format!("cache-1:{}", &secret[4..]);
        let shown = format!("{:?}", SecretKey::parse(&damaged).unwrap_err());
        assert!(!shown.contains(&secret[8..20]), "{shown}");
    }

    #[test]
    fn a_secret_key_whose_halves_do_not_fit_is_refused() {
        let mut bytes = [7; SECRET_KEY_LEN];
        bytes[SEED_LEN..].fill(9);
        let text = format!("a:{}", base64::encode(&bytes));
        assert!(matches!(
            SecretKey::parse(&text),
            Err(SignatureError::Halves { .. })
        ));
    }

    #[test]
    fn malformed_texts_are_refused() {
        for text in [
            "",
            ":",
            "a",
            "a:",
            ":AAAA",
            "a:====",
            "a:\n",
            "a:!",
            "a b:AAAA",
            "a\nb:AAAA",
        ] {
            assert!(Signature::parse(text).is_err(), "{text:?}");
            assert!(PublicKey::parse(text).is_err(), "{text:?}");
            assert!(SecretKey::parse(text).is_err(), "{text:?}");
        }
        assert!(matches!(
            PublicKey::parse("a:AAAA"),
            Err(SignatureError::KeyLength {
                kind: Kind::PublicKey,
                len: 3,
                ..
            })
        ));
        for len in [1, 31, 32, 63, 65] {
            let text = format!("a:{}", base64::encode(&vec![0; len]));
            assert!(matches!(
                SecretKey::parse(&text),
                Err(SignatureError::KeyLength { .. })
            ));
        }
        for name in ["", "a:b", "a b", "a\n"] {
            assert!(
                SecretKey::from_seed(name, [0; SEED_LEN]).is_err(),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_key_list_keeps_the_first_key_of_a_name() {
        let first = key("a").public();
        let second = SecretKey::from_seed("a", [8; SEED_LEN]).unwrap().public();
        let list = format!(" {first}\n{second}  {CACHE_NIXOS_ORG_KEY} ");
        let mut trusted = TrustedKeys::parse_list(&list).unwrap();
        assert_eq!(
            trusted.names().collect::<Vec<_>>(),
            ["a", "cache.nixos.org-1"]
        );
        assert!(trusted.verify(b"m", &key("a").sign(b"m")));
        assert!(!trusted.insert(second));
        assert!(!trusted.verify(b"m", &key("b").sign(b"m")));
        assert!(trusted.insert(key("b").public()));
        assert!(trusted.verify(b"m", &key("b").sign(b"m")));
        assert!(TrustedKeys::parse_list("a:AAAA").is_err());
        assert!(TrustedKeys::parse_list(" ").unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn parsing_undoes_printing(name in "[^\\s:\\pC]{1,20}", bytes in prop::collection::vec(any::<u8>(), 1..80), seed: [u8; 32]) {
            let text = format!("{name}:{}", base64::encode(&bytes));
            let signature = Signature::parse(&text).unwrap();
            prop_assert_eq!(signature.bytes(), bytes);
            prop_assert_eq!(signature.to_string(), text);
            let key = SecretKey::from_seed(&name, seed).unwrap().public();
            prop_assert_eq!(PublicKey::parse(&key.to_string()).unwrap(), key);
        }
    }
}
