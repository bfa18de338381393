//! What a store knows about one of its paths.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::content_address::ContentAddress;
use crate::hash::Hash;
use crate::signature::{SecretKey, Signature, TrustedKeys};
use crate::store_path::{StoreDir, StorePath};

/// A store path with its contents' hash and size and its relations to other paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The path itself.
    pub path: StorePath,
    /// SHA-256 of its NAR.
    pub nar_hash: Hash,
    /// Size of its NAR. Zero means unknown, since no NAR is empty.
    pub nar_size: u64,
    /// The paths that its contents mention, itself among them if so.
    pub references: BTreeSet<StorePath>,
    /// The derivation that it was built from.
    pub deriver: Option<StorePath>,
    /// Signatures over [`PathInfo::fingerprint`].
    pub signatures: BTreeSet<Signature>,
    /// The claim that the path follows from its contents.
    pub ca: Option<ContentAddress>,
    /// When the store got it, in seconds since 1970; unknown in a binary cache.
    pub registration_time: Option<u64>,
    /// Whether this very store built it.
    pub ultimate: bool,
}

impl PathInfo {
    /// The text that signatures sign: path, NAR hash, NAR size and references.
    pub fn fingerprint(&self, dir: &StoreDir) -> String {
        let references: Vec<String> = self
            .references
            .iter()
            .map(|path| dir.full_path(path))
            .collect();
        format!(
            "1;{};{};{};{}",
            dir.full_path(&self.path),
            self.nar_hash.to_nix32(),
            self.nar_size,
            references.join(",")
        )
    }

    /// Whether the contents mention the path itself.
    pub fn has_self_reference(&self) -> bool {
        self.references.contains(&self.path)
    }

    /// Whether the content address implies this very path; `None` if there is none.
    ///
    /// A path for which it does needs no signature, once its contents are known to have the
    /// hash that the content address states.
    pub fn matches_content_address(&self, dir: &StoreDir) -> Option<bool> {
        let address = self.ca?;
        let mut others = self.references.clone();
        let self_reference = others.remove(&self.path);
        let implied = address.store_path(dir, self.path.name(), &others, self_reference);
        Some(implied.as_ref() == Ok(&self.path))
    }

    /// Adds a signature by this key. It counts only if the NAR size is known.
    pub fn sign(&mut self, dir: &StoreDir, key: &SecretKey) {
        self.signatures
            .insert(key.sign(self.fingerprint(dir).as_bytes()));
    }

    /// Whether any of the signatures is valid and by a trusted key. An unknown NAR size cannot
    /// be vouched for, so then none is.
    pub fn is_signed_by(&self, dir: &StoreDir, keys: &TrustedKeys) -> bool {
        if self.nar_size == 0 || self.signatures.is_empty() {
            return false;
        }
        let fingerprint = self.fingerprint(dir);
        self.signatures
            .iter()
            .any(|signature| keys.verify(fingerprint.as_bytes(), signature))
    }

    /// What `nix path-info --json` says of a path of a local store: the value beside the path.
    pub fn to_json(&self, dir: &StoreDir) -> Value {
        let references = self.references.iter().map(|path| dir.full_path(path));
        let references: Vec<_> = references.collect();
        json!({
            "ca": self.ca.map(|ca| ca.to_string()),
            "deriver": self.deriver.as_ref().map(|path| dir.full_path(path)),
            "narHash": self.nar_hash.to_sri(),
            "narSize": self.nar_size,
            "references": references,
            // Nix treats a registration at the very start of 1970 as unknown.
            "registrationTime": self.registration_time.filter(|&time| time != 0),
            "signatures": self.signatures.iter().map(Signature::to_string).collect::<Vec<_>>(),
            "storeDir": dir.as_str(),
            "ultimate": self.ultimate,
            "version": JSON_VERSION,
        })
    }
}

/// The version of Nix's path info JSON that is written, its default when none is asked for.
const JSON_VERSION: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content_address::ContentAddressMethod;

    fn info() -> PathInfo {
        let path = |text| StorePath::parse(text).unwrap();
        PathInfo {
            path: path("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x"),
            nar_hash: Hash::sha256([1; 32]),
            nar_size: 120,
            references: BTreeSet::from([
                path("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x"),
                path("1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y"),
            ]),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        }
    }

    #[test]
    fn the_fingerprint_lists_full_sorted_references() {
        let nar_hash = Hash::sha256([1; 32]).to_nix32();
        assert_eq!(
            info().fingerprint(&StoreDir::default()),
            format!(
                "1;/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x;{nar_hash};120;\
                 /nix/store/1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y,\
                 /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-x"
            )
        );
        assert!(info().has_self_reference());
    }

    #[test]
    fn a_signature_covers_everything_in_the_fingerprint() {
        let dir = StoreDir::default();
        let key = SecretKey::from_seed("k", [1; 32]).unwrap();
        let keys = TrustedKeys::from_iter([key.public()]);
        let mut signed = info();
        assert!(!signed.is_signed_by(&dir, &keys));
        signed.sign(&dir, &key);
        assert!(signed.is_signed_by(&dir, &keys));
        assert!(!signed.is_signed_by(&dir, &TrustedKeys::new()));
        assert!(!signed.is_signed_by(&StoreDir::new("/gnu/store").unwrap(), &keys));
        let changed = |change: fn(&mut PathInfo)| {
            let mut info = signed.clone();
            change(&mut info);
            info.is_signed_by(&dir, &keys)
        };
        assert!(!changed(|info| info.nar_size += 1));
        assert!(!changed(|info| info.nar_hash = Hash::sha256([2; 32])));
        assert!(!changed(|info| info.references.clear()));
        assert!(
            changed(|info| info.deriver = Some(info.path.clone())),
            "not in the fingerprint"
        );
    }

    #[test]
    fn an_unknown_size_is_never_signed() {
        let dir = StoreDir::default();
        let key = SecretKey::from_seed("k", [1; 32]).unwrap();
        let mut info = info();
        info.nar_size = 0;
        info.sign(&dir, &key);
        assert!(!info.is_signed_by(&dir, &TrustedKeys::from_iter([key.public()])));
    }

    #[test]
    fn a_content_address_holds_only_for_the_path_that_it_implies() {
        let dir = StoreDir::default();
        let mut info = info();
        assert_eq!(info.matches_content_address(&dir), None);
        let address = ContentAddress {
            method: ContentAddressMethod::NixArchive,
            hash: Hash::sha256([3; 32]),
        };
        info.ca = Some(address);
        assert_eq!(info.matches_content_address(&dir), Some(false));
        let others =
            BTreeSet::from([StorePath::parse("1bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-y").unwrap()]);
        info.path = address.store_path(&dir, "x", &others, true).unwrap();
        info.references = others;
        info.references.insert(info.path.clone());
        assert_eq!(info.matches_content_address(&dir), Some(true));
        info.ca = Some(ContentAddress {
            method: ContentAddressMethod::Text,
            ..address
        });
        assert_eq!(
            info.matches_content_address(&dir),
            Some(false),
            "no self-references in texts"
        );
    }
}
