//! Path infos: the metadata of a store path in a store.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::base64;
use crate::content_address::ContentAddress;
use crate::hash::Hash;
use crate::signature::{SecretKey, Signature, TrustedKeys, drop_junk};

pub use crate::signature::OTHER_SIGNATURES_LEN_MAX;
use crate::store_path::{StoreDir, StorePath};

/// The metadata of a valid store path, like Nix's `ValidPathInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// The store path.
    pub path: StorePath,
    /// SHA-256 of the NAR.
    pub nar_hash: Hash,
    /// Size of the NAR, in bytes. Zero means unknown, because no NAR is empty.
    pub nar_size: u64,
    /// The paths that the contents refer to, which may include the path itself.
    pub references: BTreeSet<StorePath>,
    /// The derivation that built the path.
    pub deriver: Option<StorePath>,
    /// Signatures over [`PathInfo::fingerprint`].
    pub signatures: BTreeSet<Signature>,
    /// The content address, if the path was computed from its contents.
    pub ca: Option<ContentAddress>,
    /// Time of registration, in seconds since 1970. `None` in a binary cache.
    pub registration_time: Option<u64>,
    /// Whether the path was built in this store.
    pub ultimate: bool,
}

impl PathInfo {
    /// Returns the text that is signed: the path, the NAR hash, the NAR size and the references.
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

    /// Returns whether the contents refer to the path itself.
    pub fn has_self_reference(&self) -> bool {
        self.references.contains(&self.path)
    }

    /// Returns whether the path is the one computed from its content address.
    ///
    /// Returns `None` without a content address. If the result is true and the contents have the
    /// hash in the content address, the path needs no signature.
    pub fn matches_content_address(&self, dir: &StoreDir) -> Option<bool> {
        let address = self.ca?;
        let mut references = self.references.clone();
        let self_reference = references.remove(&self.path);
        let computed = address.store_path(dir, self.path.name(), &references, self_reference);
        Some(computed.as_ref() == Ok(&self.path))
    }

    /// Adds a signature by a key. The signature is valid only if the NAR size is known.
    pub fn sign(&mut self, dir: &StoreDir, key: &SecretKey) {
        self.signatures
            .insert(key.sign(self.fingerprint(dir).as_bytes()));
    }

    /// Returns which fact that a signature covers differs from that of another description of the
    /// same path; `None` if none differs.
    pub fn signed_difference(&self, other: &PathInfo) -> Option<&'static str> {
        match () {
            () if self.nar_hash != other.nar_hash => Some("NAR hash"),
            () if self.nar_size != other.nar_size => Some("NAR size"),
            () if self.references != other.references => Some("references"),
            () => None,
        }
    }

    /// Returns whether a trusted key made at least one of the signatures.
    ///
    /// If the NAR size is unknown, no signature is valid, because the fingerprint contains it.
    pub fn is_signed_by(&self, dir: &StoreDir, keys: &TrustedKeys) -> bool {
        self.is_signed_by_at_least(1, dir, keys)
    }

    /// Returns whether at least `needed` trusted keys made signatures.
    pub fn is_signed_by_at_least(&self, needed: usize, dir: &StoreDir, keys: &TrustedKeys) -> bool {
        if self.nar_size == 0 || self.signatures.len() < needed {
            return false;
        }
        let fingerprint = self.fingerprint(dir);
        let verified = self
            .signatures
            .iter()
            .filter(|signature| keys.verify(fingerprint.as_bytes(), signature));
        let mut signers = BTreeSet::new();
        for signature in verified {
            signers.insert(signature.key_name());
            if signers.len() >= needed {
                return true;
            }
        }
        needed == 0
    }

    /// Drops signatures that no client needs, because any cache can add any number of them. Keeps
    /// those by trusted keys, and the first [`OTHER_SIGNATURES_LEN_MAX`] bytes of others that could
    /// be genuine. Returns the number of dropped signatures.
    pub fn drop_junk_signatures(&mut self, dir: &StoreDir, keys: &TrustedKeys) -> usize {
        let mut signatures = std::mem::take(&mut self.signatures);
        let dropped = drop_junk(&mut signatures, keys, || self.fingerprint(dir));
        self.signatures = signatures;
        dropped
    }

    /// Returns the value that `nix path-info --json` prints for a path in a local store, in the
    /// format that is Nix's default.
    pub fn to_json(&self, dir: &StoreDir) -> Value {
        self.to_json_of(dir, JsonFormat::V1)
    }

    /// Returns the value that `nix path-info --json` prints for a path in a local store.
    pub fn to_json_of(&self, dir: &StoreDir, format: JsonFormat) -> Value {
        let print = |path: &StorePath| match format {
            JsonFormat::V1 => dir.full_path(path),
            JsonFormat::V2 | JsonFormat::V3 => path.to_string(),
        };
        let ca = |ca: ContentAddress| match format {
            JsonFormat::V1 => json!(ca.to_string()),
            JsonFormat::V2 | JsonFormat::V3 => {
                json!({ "hash": ca.hash.to_sri(), "method": ca.method.name() })
            }
        };
        let signature = |signature: &Signature| match format {
            JsonFormat::V1 | JsonFormat::V2 => json!(signature.to_string()),
            JsonFormat::V3 => json!({
                "keyName": signature.key_name(),
                "sig": base64::encode(signature.bytes()),
            }),
        };
        json!({
            "ca": self.ca.map(ca),
            "deriver": self.deriver.as_ref().map(print),
            "narHash": self.nar_hash.to_sri(),
            "narSize": self.nar_size,
            "references": self.references.iter().map(print).collect::<Vec<_>>(),
            // For Nix, a registration time of zero is unknown.
            "registrationTime": self.registration_time.filter(|&time| time != 0),
            "signatures": self.signatures.iter().map(signature).collect::<Vec<_>>(),
            "storeDir": dir.as_str(),
            "ultimate": self.ultimate,
            "version": format.number(),
        })
    }
}

/// A format of the JSON of `nix path-info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonFormat {
    /// Full store paths, and content addresses as one text.
    #[default]
    V1,
    /// Base names of store paths, and content addresses as objects.
    V2,
    /// Also signatures as objects, as in Nix 2.36.
    V3,
}

impl JsonFormat {
    /// The number that Nix gives to the format.
    pub fn number(self) -> u64 {
        match self {
            JsonFormat::V1 => 1,
            JsonFormat::V2 => 2,
            JsonFormat::V3 => 3,
        }
    }
}

/// Returns the sum of sizes in bytes, at most [`u64::MAX`]. A cache or a damaged row may state any
/// size.
pub fn sum_of_sizes(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

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
    fn fingerprint_has_sorted_full_paths_of_references() {
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
    fn facts_that_a_signature_covers_are_compared() {
        let one = info();
        assert_eq!(one.signed_difference(&one), None);
        let differs = |change: fn(&mut PathInfo)| {
            let mut other = one.clone();
            change(&mut other);
            one.signed_difference(&other)
        };
        let hash = differs(|other| other.nar_hash = Hash::sha256([2; 32]));
        assert_eq!(hash, Some("NAR hash"));
        assert_eq!(differs(|other| other.nar_size += 1), Some("NAR size"));
        let references = differs(|other| other.references.clear());
        assert_eq!(references, Some("references"));
        assert_eq!(
            differs(|other| other.deriver = Some(other.path.clone())),
            None
        );
    }

    #[test]
    fn each_trusted_key_counts_once() {
        let dir = StoreDir::default();
        let key = |name: &str, seed| SecretKey::from_seed(name, [seed; 32]).unwrap();
        let (one, other) = (key("one", 1), key("other", 2));
        let keys = TrustedKeys::from_iter([one.public(), other.public()]);
        let mut info = info();
        assert!(!info.is_signed_by(&dir, &keys));
        info.sign(&dir, &one);
        info.sign(&dir, &key("stranger", 3));
        assert!(info.is_signed_by(&dir, &keys));
        assert!(!info.is_signed_by_at_least(2, &dir, &keys));
        info.sign(&dir, &other);
        assert!(info.is_signed_by_at_least(2, &dir, &keys));
        assert!(!info.is_signed_by_at_least(3, &dir, &keys));
    }

    #[test]
    fn junk_signatures_are_dropped_and_trusted_ones_stay() {
        let dir = StoreDir::default();
        let key = SecretKey::from_seed("zz", [1; 32]).unwrap();
        let mut info = info();
        info.sign(&dir, &key);
        for number in 0..100 {
            let other = SecretKey::from_seed(&format!("junk-{number}"), [2; 32]).unwrap();
            info.sign(&dir, &other);
        }
        let long = format!("{}:{}", "n".repeat(300), "A".repeat(88));
        info.signatures.insert(Signature::parse(&long).unwrap());
        info.signatures.insert(Signature::parse("a:AAAA").unwrap());
        let before = info.signatures.len();
        let keys = TrustedKeys::from_iter([key.public()]);
        let dropped = info.drop_junk_signatures(&dir, &keys);
        assert_eq!(info.signatures.len(), before - dropped);
        let texts = info.signatures.iter().map(|it| it.to_string().len());
        let len: usize = texts.sum();
        let one_more = OTHER_SIGNATURES_LEN_MAX + 200;
        assert!(
            (OTHER_SIGNATURES_LEN_MAX - 100..one_more).contains(&len),
            "{len} bytes"
        );
        assert_eq!(info.drop_junk_signatures(&dir, &keys), 0);
        assert!(info.is_signed_by(&dir, &TrustedKeys::from_iter([key.public()])));
        let names = info.signatures.iter().map(Signature::key_name);
        assert!(
            names
                .into_iter()
                .all(|name| name.len() < 300 && name != "a")
        );
    }

    #[test]
    fn few_plausible_signatures_by_unknown_keys_all_stay() {
        let dir = StoreDir::default();
        let mut info = info();
        for number in 0..30 {
            let name = format!("key-{number}");
            info.sign(&dir, &SecretKey::from_seed(&name, [2; 32]).unwrap());
        }
        assert_eq!(info.drop_junk_signatures(&dir, &TrustedKeys::new()), 0);
        assert_eq!(info.signatures.len(), 30);
    }

    #[test]
    fn signature_covers_all_of_fingerprint() {
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
    fn path_of_unknown_size_is_never_signed() {
        let dir = StoreDir::default();
        let key = SecretKey::from_seed("k", [1; 32]).unwrap();
        let mut info = info();
        info.nar_size = 0;
        info.sign(&dir, &key);
        assert!(!info.is_signed_by(&dir, &TrustedKeys::from_iter([key.public()])));
    }

    #[test]
    fn content_address_matches_only_its_own_path() {
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
