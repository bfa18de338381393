//! The options of a copy, as plain values. This crate reads no configuration.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{Hash, PathInfo, PublicKey, StorePath, TrustedKeys};

use crate::cancel::Cancel;
use crate::closure_limit::ClosureLimit;
use crate::error::Error;

/// The options of one copy.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// The public keys whose signatures are trusted.
    pub trusted_keys: TrustedKeys,
    /// Whether a path into a local store needs a signature or a content address.
    pub check_signatures: bool,
    /// How many trusted keys must have signed a path without a content address: at least one.
    pub signatures_needed: usize,
    /// Whether paths of a source with the parameter `trusted` need no signature. Nix obeys the
    /// parameter for substituters only.
    pub obey_trusted: bool,
    /// The number of paths that are unpacked or packed at once. `None`: chosen for the machine.
    pub jobs: Option<NonZeroUsize>,
    /// Whether equal files of a local store become hard links to one file in `.links`
    /// (`auto-optimise-store`).
    pub optimise: bool,
    /// Other stores of this machine whose paths are reused.
    pub reuse: Reuse,
    /// Resolve and plan only.
    pub dry_run: bool,
    /// The largest closure that is copied.
    pub closure_limit: ClosureLimit,
    /// Whether the copy is refused if the target's file system has too little space.
    pub check_space: bool,
    /// The NAR hashes that some paths must have, even if another one is signed.
    pub nar_hashes: BTreeMap<StorePath, Hash>,
    /// The paths that the copy replaces in a binary cache. Then each path needs the facts here, or
    /// the trust that it would need in a store, and keeps the signatures here.
    pub replaced: Option<BTreeMap<StorePath, PathInfo>>,
    /// Whether a file of a binary cache is compared with the FileHash of its narinfo and with its
    /// own checks. The NAR hash is compared always.
    pub check_file_hash: bool,
    /// The flag that cancels the copy.
    pub cancel: Cancel,
}

impl Default for CopyOptions {
    /// All checks but that of the file hash are on, no key is trusted, and no file is linked or
    /// reused.
    fn default() -> CopyOptions {
        CopyOptions {
            trusted_keys: TrustedKeys::default(),
            check_signatures: true,
            signatures_needed: 1,
            obey_trusted: true,
            jobs: None,
            optimise: false,
            reuse: Reuse::default(),
            dry_run: false,
            closure_limit: ClosureLimit::default(),
            check_space: true,
            nar_hashes: BTreeMap::new(),
            replaced: None,
            check_file_hash: false,
            cancel: Cancel::default(),
        }
    }
}

impl CopyOptions {
    /// Returns what the target states of a path that the copy replaces, if a source states the
    /// same.
    pub fn replaced_info(&self, info: &PathInfo) -> Option<&PathInfo> {
        let replaced = self.replaced.as_ref()?.get(&info.path)?;
        replaced
            .signed_difference(info)
            .is_none()
            .then_some(replaced)
    }
}

/// Other stores on this machine, and how their files are reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Directories whose entries are store paths, in the order of the search.
    pub directories: Vec<PathBuf>,
    /// How files are reused.
    pub by: ReuseBy,
}

impl Reuse {
    /// Whether there is another store to reuse files from.
    pub fn is_used(&self) -> bool {
        !self.directories.is_empty()
    }

    /// Returns the places of a path in the other stores.
    pub fn local_copies(&self, path: &StorePath) -> Vec<PathBuf> {
        let copies = self.directories.iter().map(|dir| dir.join(path.as_str()));
        copies
            .filter(|place| place.symlink_metadata().is_ok())
            .collect()
    }
}

/// How the files of a path are reused from another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseBy {
    /// As clones that share blocks with the originals; as copies if the file system cannot clone.
    #[default]
    Reflink,
    /// As hard links to the originals if their metadata is that of a store; otherwise as clones or
    /// copies.
    HardLink,
    /// As copies.
    Copy,
}

/// Returns the keys in `texts`. Without any text, returns the key that Nix trusts by default. A
/// text may contain several keys, separated by white space, or none.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn trusted_keys<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<TrustedKeys, Error> {
    let mut texts = texts.into_iter().peekable();
    let default = texts.peek().is_none().then_some(CACHE_NIXOS_ORG_KEY);
    parse_public_keys(default.into_iter().chain(texts))
}

/// Parses public keys. A text may contain several, separated by white space.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn parse_public_keys<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<TrustedKeys, Error> {
    let words = texts.into_iter().flat_map(str::split_ascii_whitespace);
    let parse = |word: &str| {
        PublicKey::parse(word).map_err(|error| Error::InvalidPublicKey {
            name: match word.split_once(':') {
                Some((name, _)) => name.into(),
                None => word.chars().take(SHOWN_WITHOUT_NAME).collect(),
            },
            reason: error.reason(),
        })
    };
    words.map(parse).collect()
}

/// How many characters of a key without a name an error shows: enough to find it, and little of a
/// secret key.
const SHOWN_WITHOUT_NAME: usize = 8;

#[cfg(test)]
mod tests {
    use floe_format::SecretKey;

    use super::*;

    #[test]
    fn own_keys_replace_default_and_extra_keys_add() {
        let own = SecretKey::from_seed("own-1", [7; 32]).unwrap().public();
        let own = own.to_string();
        let names = |keys: TrustedKeys| keys.names().map(String::from).collect::<Vec<_>>();
        assert_eq!(names(trusted_keys([]).unwrap()), ["cache.nixos.org-1"]);
        assert_eq!(names(trusted_keys([&*own]).unwrap()), ["own-1"]);
        let mut both = trusted_keys([]).unwrap();
        both.extend(parse_public_keys([&*own]).unwrap());
        assert_eq!(names(both), ["cache.nixos.org-1", "own-1"]);
        // A text without keys means that no key is trusted.
        assert!(trusted_keys([" "]).unwrap().is_empty());
    }

    #[test]
    fn public_key_error_hides_secret_key() {
        let secret = SecretKey::from_seed("own-1", [7; 32]).unwrap().to_text();
        let error = trusted_keys([&*secret]).unwrap_err().to_string();
        assert!(error.contains("\"own-1\""), "{error}");
        let (_, key) = secret.split_once(':').unwrap();
        assert!(!error.contains(key), "{error}");
    }
}
