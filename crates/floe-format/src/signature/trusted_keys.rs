//! The set of keys whose signatures count.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;

use crate::signature::{PublicKey, Signature, SignatureError};

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
        match self.0.entry(key.name().into()) {
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
