//! What a caller chooses, as plain values. Nothing here is read from files or the environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{PublicKey, StorePath, TrustedKeys};

use crate::cancel::Cancel;
use crate::error::Error;

/// Choices of one move.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Keys whose signature makes a path welcome.
    pub trusted_keys: TrustedKeys,
    /// Whether a path into a local store needs a signature or a content address.
    pub check_signatures: bool,
    /// How many paths are unpacked or packed at once; what suits the machine where it is not said.
    pub jobs: Option<NonZeroUsize>,
    /// Whether equal files of a local store become one, by links in `.links`
    /// (`auto-optimise-store`).
    pub optimise: bool,
    /// Other stores of this machine, from which paths are taken that they have.
    pub reuse: Reuse,
    /// Resolve and plan only.
    pub dry_run: bool,
    /// Whether a move is refused that the target's file system has no room for.
    pub check_space: bool,
    /// Raised from outside to end the move soon.
    pub cancel: Cancel,
}

impl Default for CopyOptions {
    /// Everything is checked, nobody is trusted yet, and nothing is linked or taken from elsewhere.
    fn default() -> CopyOptions {
        CopyOptions {
            trusted_keys: TrustedKeys::default(),
            check_signatures: true,
            jobs: None,
            optimise: false,
            reuse: Reuse::default(),
            dry_run: false,
            check_space: true,
            cancel: Cancel::default(),
        }
    }
}

/// Other stores on this machine, and how files come from there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Directories whose entries are store paths, in the order in which they are looked at.
    pub directories: Vec<PathBuf>,
    /// What files become.
    pub by: ReuseBy,
}

impl Reuse {
    /// Whether there is another store to reuse files from.
    pub fn is_used(&self) -> bool {
        !self.directories.is_empty()
    }

    /// Returns where a path lies in the other stores.
    pub fn local_copies(&self, path: &StorePath) -> Vec<PathBuf> {
        let copies = self.directories.iter().map(|dir| dir.join(path.as_str()));
        copies
            .filter(|place| place.symlink_metadata().is_ok())
            .collect()
    }
}

/// What the files of a path become that is taken from another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReuseBy {
    /// Clones that share blocks with the originals, or copies where the file system has no clones.
    #[default]
    Reflink,
    /// The originals themselves, where they are as a store has them, else clones or copies.
    HardLink,
    /// Copies.
    Copy,
}

/// The keys in `texts`; if there is no text, the one that Nix trusts without configuration. A text
/// may hold several, separated by white space, or none.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn trusted_keys<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<TrustedKeys, Error> {
    let mut texts = texts.into_iter().peekable();
    let default = texts.peek().is_none().then_some(CACHE_NIXOS_ORG_KEY);
    parse_public_keys(default.into_iter().chain(texts))
}

/// Parses public keys. A text may hold several, separated by white space.
///
/// Errors: [`Error::InvalidPublicKey`].
pub fn parse_public_keys<'a>(
    texts: impl IntoIterator<Item = &'a str>,
) -> Result<TrustedKeys, Error> {
    let words = texts.into_iter().flat_map(str::split_ascii_whitespace);
    let parse = |word: &str| {
        PublicKey::parse(word).map_err(|_| {
            let name = word.split(':').next().unwrap_or_default().into();
            Error::InvalidPublicKey { name }
        })
    };
    words.map(parse).collect()
}

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
        // Somebody who says "none" trusts nobody.
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
