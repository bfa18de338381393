//! The set of trusted public keys.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;

use crate::signature::{PublicKey, Signature, SignatureError};

/// A set of trusted public keys, by name.
///
/// As in Nix, the first key of a name is kept, and later keys of the same name are ignored.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub struct TrustedKeys(BTreeMap<Arc<str>, PublicKey>);

impl TrustedKeys {
    /// Makes an empty set.
    pub fn new() -> TrustedKeys {
        TrustedKeys::default()
    }

    /// Parses keys that are separated by white space, as in the setting `trusted-public-keys`.
    pub fn parse_list(text: &str) -> Result<TrustedKeys, SignatureError> {
        text.split_ascii_whitespace()
            .map(PublicKey::parse)
            .collect()
    }

    /// Adds a key unless the set has one of the same name. Returns whether the key was added.
    pub fn insert(&mut self, key: PublicKey) -> bool {
        match self.0.entry(key.name().into()) {
            btree_map::Entry::Vacant(entry) => {
                entry.insert(key);
                true
            }
            btree_map::Entry::Occupied(_) => false,
        }
    }

    /// Returns the sorted names of the keys.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(AsRef::as_ref)
    }

    /// Returns the keys, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &PublicKey> {
        self.0.values()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether one of the keys made the signature for this message.
    ///
    /// A signature of the wrong length is not valid. Nix fails with an error instead, if the
    /// signature has the name of a trusted key.
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
