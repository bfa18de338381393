//! Store paths, and the directory that they stand in.

use std::fmt;
use std::sync::Arc;

use crate::hash_part::HashPart;
use crate::nix32;

/// Why a text is not a store path or a store directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorePathError {
    /// The store directory is not an absolute path, or is the root, or has control characters or
    /// a space at the end.
    #[error("cannot use {0:?} as a store directory: it must be an absolute path below the root")]
    InvalidStoreDir(String),
    /// The path does not lie directly in the store directory.
    #[error("cannot parse store path {path:?}: it is not directly in {dir:?}")]
    NotInStore {
        /// The whole path.
        path: String,
        /// The store directory.
        dir: String,
    },
    /// There is no room for a hash part, a dash and a name.
    #[error("cannot parse store path {0:?}: it is too short")]
    TooShort(String),
    /// The first 32 characters are not a hash part followed by a dash.
    #[error("cannot parse store path {0:?}: it does not start with a hash part and a dash")]
    InvalidHashPart(String),
    /// The name is empty.
    #[error("cannot name a store path: the name is empty")]
    NameEmpty,
    /// The name is longer than [`NAME_LEN_MAX`].
    #[error("cannot name a store path {0:?}: longer than NAME_LEN_MAX, {NAME_LEN_MAX} characters")]
    NameTooLong(String),
    /// The name has a character that Nix does not allow there.
    #[error("cannot name a store path {name:?}: character {character:?} is not allowed")]
    NameCharacter {
        /// The whole name.
        name: String,
        /// The offending character.
        character: char,
    },
    /// The name is `.` or `..`, or one of these followed by a dash.
    #[error("cannot name a store path {0:?}: it starts like a relative path")]
    NameDots(String),
}

/// The directory that a store's paths stand in, by default `/nix/store`.
///
/// It is part of every store path's hash, so stores with other directories share no paths.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StoreDir(Arc<str>);

impl StoreDir {
    /// A store directory from an absolute path, which is normalized as Nix does it: repeated
    /// slashes, `.` and `..` go away, without a look at the file system.
    pub fn new(text: &str) -> Result<StoreDir, StorePathError> {
        match normalize(text) {
            Some(path) if is_directory(&path) => Ok(StoreDir(path.into())),
            _ => Err(StorePathError::InvalidStoreDir(text.into())),
        }
    }

    /// The directory as text, without a slash at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full path of a store path.
    pub fn full_path(&self, path: &StorePath) -> String {
        format!("{}/{path}", self.0)
    }

    /// Parses a full path that is written exactly as [`StoreDir::full_path`] writes it.
    pub fn parse(&self, text: &str) -> Result<StorePath, StorePathError> {
        let base_name = text
            .strip_prefix(self.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| self.not_in_store(text))?;
        StorePath::parse(base_name)
    }

    /// Parses a full path after normalizing it, as Nix does where a person or a narinfo names
    /// the path.
    pub fn parse_normalizing(&self, text: &str) -> Result<StorePath, StorePathError> {
        match normalize(text) {
            Some(path) => self.parse(&path),
            None => Err(self.not_in_store(text)),
        }
    }

    /// The store path for a thing of this kind (`source`, `text`, `output:out`, with references
    /// appended), with this digest and name.
    ///
    /// The hash part is the SHA-256 of all of them and of the store directory, folded to 160 bits.
    pub fn make_store_path(
        &self,
        kind: &str,
        digest_base16_prefixed: &str,
        name: &str,
    ) -> Result<StorePath, StorePathError> {
        check_name(name)?;
        let preimage = format!("{kind}:{digest_base16_prefixed}:{}:{name}", self.0);
        let folded = fold(floe_hash::sha256(preimage.as_bytes()));
        Ok(StorePath(
            format!("{}-{name}", nix32::encode(&folded)).into(),
        ))
    }

    fn not_in_store(&self, path: &str) -> StorePathError {
        StorePathError::NotInStore {
            path: path.into(),
            dir: self.as_str().into(),
        }
    }
}

impl Default for StoreDir {
    /// `/nix/store`
    fn default() -> StoreDir {
        StoreDir("/nix/store".into())
    }
}

impl fmt::Display for StoreDir {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The base name of a store path: a hash part, a dash and a name.
///
/// A clone shares the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorePath(Arc<str>);

impl StorePath {
    /// Parses a base name, such as `7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello-2.12`.
    pub fn parse(base_name: &str) -> Result<StorePath, StorePathError> {
        if base_name.len() <= HashPart::LEN {
            return Err(StorePathError::TooShort(base_name.into()));
        }
        let (_, name) = base_name
            .split_at_checked(HashPart::LEN)
            .and_then(|(hash_part, rest)| {
                Some((HashPart::parse(hash_part)?, rest.strip_prefix('-')?))
            })
            .ok_or_else(|| StorePathError::InvalidHashPart(base_name.into()))?;
        check_name(name)?;
        Ok(StorePath(base_name.into()))
    }

    /// The whole base name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 32 characters before the dash, which find the path's narinfo in a binary cache.
    pub fn hash_part(&self) -> &str {
        self.0.get(..HashPart::LEN).unwrap_or_default()
    }

    /// What follows the dash.
    pub fn name(&self) -> &str {
        self.0.get(HashPart::LEN + 1..).unwrap_or_default()
    }

    /// Whether the name ends in `.drv`.
    pub fn is_derivation(&self) -> bool {
        self.name().ends_with(DERIVATION_EXTENSION)
    }
}

impl fmt::Display for StorePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for StorePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Checks that a text can be the name of a store path.
fn check_name(name: &str) -> Result<(), StorePathError> {
    if name.is_empty() {
        return Err(StorePathError::NameEmpty);
    }
    if name.len() > NAME_LEN_MAX {
        return Err(StorePathError::NameTooLong(name.into()));
    }
    if matches!(name.split('-').next(), Some("." | "..")) {
        return Err(StorePathError::NameDots(name.into()));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "+-._?=".contains(c);
    match name.chars().find(|&character| !allowed(character)) {
        Some(character) => Err(StorePathError::NameCharacter {
            name: name.into(),
            character,
        }),
        None => Ok(()),
    }
}

/// The longest name. With the hash part and the dash it leaves room for suffixes such as `.lock`
/// within the 255 bytes that file systems allow.
pub const NAME_LEN_MAX: usize = 211;

/// What the names of derivations end in.
pub const DERIVATION_EXTENSION: &str = ".drv";

/// The path without empty and `.` components and with `..` resolved by text alone; `None` for a
/// relative path.
fn normalize(text: &str) -> Option<String> {
    let mut components = Vec::new();
    for component in text.strip_prefix('/')?.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop();
            }
            _ => components.push(component),
        }
    }
    Some(format!("/{}", components.join("/")))
}

/// Whether stores may have this directory. One with control characters, or a space at the end,
/// would not survive in `nix-cache-info`, whose lines are trimmed.
fn is_directory(path: &str) -> bool {
    path != "/" && !path.ends_with(' ') && !path.contains(|c: char| c.is_control())
}

/// Folds a digest to the 20 bytes of a hash part by exclusive or.
fn fold(digest: [u8; 32]) -> [u8; 20] {
    let mut folded = [0; 20];
    for chunk in digest.chunks(folded.len()) {
        for (to, from) in folded.iter_mut().zip(chunk) {
            *to ^= from;
        }
    }
    folded
}

#[cfg(test)]
mod tests;
