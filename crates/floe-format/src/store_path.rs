//! Store paths and store directories.

use std::fmt;
use std::sync::Arc;

use crate::hash_part::HashPart;
use crate::nix32;

/// Reason why a text is not a valid store path or store directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorePathError {
    /// The store directory is not an absolute path, is `/`, or has control characters or a space
    /// at the end.
    #[error("cannot use {0:?} as a store directory: it must be an absolute path other than /")]
    InvalidStoreDir(String),
    /// The path is not a direct child of the store directory.
    #[error("cannot parse store path {path:?}: {}", self.reason())]
    NotInStore {
        /// The whole path.
        path: String,
        /// The store directory.
        dir: String,
    },
    /// A `..` component leaves the store path.
    #[error("cannot parse store path {0:?}: {reason}", reason = self.reason())]
    Leaves(String),
    /// The base name does not begin with a hash part and a dash.
    #[error("cannot parse store path {0:?}: {reason}", reason = self.reason())]
    NoHashPart(String),
    /// The text before the first dash is like a hash part, with a wrong length.
    #[error("cannot parse store path {path:?}: {}", self.reason())]
    HashPartLength {
        /// The base name.
        path: String,
        /// The number of characters.
        len: usize,
    },
    /// The text before the first dash is like a hash part, with a wrong character.
    #[error("cannot parse store path {path:?}: {}", self.reason())]
    HashPartCharacter {
        /// The base name.
        path: String,
        /// The first invalid character.
        character: char,
    },
    /// The name is empty.
    #[error("cannot use an empty name for a store path")]
    NameEmpty,
    /// The name is longer than [`NAME_LEN_MAX`].
    #[error("cannot use store path name {0:?}: it is longer than {NAME_LEN_MAX} characters")]
    NameTooLong(String),
    /// The name has a character that Nix does not allow.
    #[error("cannot use store path name {name:?}: character {character:?} is not allowed")]
    NameCharacter {
        /// The whole name.
        name: String,
        /// The first invalid character.
        character: char,
    },
    /// The name is `.` or `..`, or starts with one of them and a dash.
    #[error("cannot use store path name {0:?}: it starts like a relative path")]
    NameDots(String),
}

impl StorePathError {
    /// Returns the cause without the text, for a message that already has the text.
    pub fn reason(&self) -> String {
        match self {
            StorePathError::InvalidStoreDir(_) => "it must be an absolute path other than /".into(),
            StorePathError::NotInStore { dir, .. } => format!("it is not directly in {dir:?}"),
            StorePathError::Leaves(_) => "a .. in it leads out of the path".into(),
            StorePathError::NoHashPart(_) => format!(
                "it does not begin with a hash part of {} characters and a dash",
                HashPart::LEN
            ),
            StorePathError::HashPartLength { len, .. } => format!(
                "its hash part has {len} characters instead of {}",
                HashPart::LEN
            ),
            StorePathError::HashPartCharacter { character, .. } => format!(
                "its hash part has the character {character:?}, and only digits and lower-case \
                 letters other than e, o, t and u are allowed"
            ),
            StorePathError::NameEmpty => "its name is empty".into(),
            StorePathError::NameTooLong(_) => {
                format!("its name is longer than {NAME_LEN_MAX} characters")
            }
            StorePathError::NameCharacter { character, .. } => {
                format!("its name has the character {character:?}, which is not allowed")
            }
            StorePathError::NameDots(_) => "its name starts like a relative path".into(),
        }
    }
}

/// A store directory: the parent of all paths of a store, by default `/nix/store`.
///
/// The directory is part of the hash of every store path, so stores with different directories
/// have no path in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StoreDir(Arc<str>);

impl StoreDir {
    /// Makes a store directory of an absolute path.
    ///
    /// The path is normalized as Nix does it, without access to the file system: repeated slashes
    /// and `.` are removed, and `..` removes the component before it.
    pub fn new(text: &str) -> Result<StoreDir, StorePathError> {
        match normalize(text) {
            Some(path) if is_valid_store_dir(&path) => Ok(StoreDir(path.into())),
            _ => Err(StorePathError::InvalidStoreDir(text.into())),
        }
    }

    /// Returns the directory, without a slash at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the absolute path of a store path.
    pub fn full_path(&self, path: &StorePath) -> String {
        format!("{}/{path}", self.0)
    }

    /// Parses an absolute path in exactly the form of [`StoreDir::full_path`].
    pub fn parse(&self, text: &str) -> Result<StorePath, StorePathError> {
        let base_name = text
            .strip_prefix(self.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or_else(|| self.not_in_store(text))?;
        StorePath::parse(base_name)
    }

    /// Normalizes an absolute path and parses it, as Nix does for user input and narinfos.
    pub fn parse_normalizing(&self, text: &str) -> Result<StorePath, StorePathError> {
        let path = normalize(text).ok_or_else(|| self.not_in_store(text))?;
        self.parse(&path)
    }

    /// Returns the store path that an absolute path names, or in which it names a file, like Nix's
    /// `toStorePath`. The path is normalized without access to the file system.
    ///
    /// Stricter than Nix, `..` must not lead out of the store path, not even into another one.
    pub fn to_store_path(&self, text: &str) -> Result<StorePath, StorePathError> {
        let (path, _) = self.to_file_in_path(text)?;
        Ok(path)
    }

    /// As [`StoreDir::to_store_path`], but also returns the names from the store path to the file.
    pub fn to_file_in_path<'a>(
        &self,
        text: &'a str,
    ) -> Result<(StorePath, Vec<&'a str>), StorePathError> {
        let not_in_store = || self.not_in_store(text);
        let rest = text.strip_prefix('/').ok_or_else(not_in_store)?;
        let dir: Vec<&str> = self.components().collect();
        let mut found: Vec<&'a str> = Vec::new();
        for component in rest.split('/') {
            match component {
                "" | "." => {}
                ".." if found.len() == dir.len() + 1 && found.starts_with(&dir) => {
                    return Err(StorePathError::Leaves(text.into()));
                }
                ".." => {
                    found.pop();
                }
                _ => found.push(component),
            }
        }
        if !found.starts_with(&dir) {
            return Err(not_in_store());
        }
        let mut inside = found.split_off(dir.len()).into_iter();
        let path = StorePath::parse(inside.next().ok_or_else(not_in_store)?)?;
        Ok((path, inside.collect()))
    }

    /// Computes a store path, like Nix's `makeStorePath`.
    ///
    /// `kind` is `source`, `text` or `output:NAME`, with the references appended. `hash` is
    /// `sha256:` and a hexadecimal digest. The hash part is the SHA-256 of the arguments and the
    /// store directory, folded to 160 bits.
    pub fn make_store_path(
        &self,
        kind: &str,
        hash: &str,
        name: &str,
    ) -> Result<StorePath, StorePathError> {
        check_name(name)?;
        let preimage = format!("{kind}:{hash}:{}:{name}", self.0);
        let folded = fold(floe_hash::sha256(preimage.as_bytes()));
        Ok(StorePath(
            format!("{}-{name}", nix32::encode(&folded)).into(),
        ))
    }

    fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    fn not_in_store(&self, path: &str) -> StorePathError {
        StorePathError::NotInStore {
            path: path.into(),
            dir: self.as_str().into(),
        }
    }
}

impl Default for StoreDir {
    /// Returns `/nix/store`.
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
/// Clones share the text.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorePath(Arc<str>);

impl StorePath {
    /// Parses a base name, such as `7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello-2.12`.
    pub fn parse(base_name: &str) -> Result<StorePath, StorePathError> {
        let (_, name) = base_name
            .split_at_checked(HashPart::LEN)
            .and_then(|(hash_part, rest)| {
                Some((HashPart::parse(hash_part)?, rest.strip_prefix('-')?))
            })
            .ok_or_else(|| hash_part_error(base_name))?;
        check_name(name)?;
        Ok(StorePath(base_name.into()))
    }

    /// Returns the base name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hash part: the 32 characters before the dash.
    pub fn hash_part(&self) -> HashPart {
        HashPart::of_base_name(&self.0)
    }

    /// Returns the name: the text after the dash.
    pub fn name(&self) -> &str {
        self.0.get(HashPart::LEN + 1..).unwrap_or_default()
    }

    /// Returns whether the name ends with `.drv`.
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

/// Finds out why a base name does not begin with a hash part and a dash.
fn hash_part_error(base_name: &str) -> StorePathError {
    let path = base_name.to_owned();
    let part = base_name.split('-').next().unwrap_or_default();
    let len = part.chars().count();
    let is_like_hash_part = len >= HASH_LIKE_LEN_MIN
        && part.chars().all(char::is_alphanumeric)
        && part.contains(|c: char| c.is_ascii_digit());
    if !is_like_hash_part {
        return StorePathError::NoHashPart(path);
    }
    match part.chars().find(|&c| !nix32::is_digit(c)) {
        Some(character) => StorePathError::HashPartCharacter { path, character },
        None if len != HashPart::LEN => StorePathError::HashPartLength { path, len },
        None => StorePathError::NameEmpty,
    }
}

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
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "+-._?=".contains(c);
    match name.chars().find(|&character| !is_allowed(character)) {
        Some(character) => Err(StorePathError::NameCharacter {
            name: name.into(),
            character,
        }),
        None => Ok(()),
    }
}

/// Length of the longest name, as in Nix.
///
/// File systems allow 255 bytes. The hash part and the dash take 33; the rest is for suffixes
/// that Nix appends, such as `.lock`.
pub const NAME_LEN_MAX: usize = 211;

/// The least length of a text that is taken for a misspelt hash part. The first words of names are
/// shorter.
const HASH_LIKE_LEN_MIN: usize = 20;

/// The suffix of the names of derivations.
pub const DERIVATION_EXTENSION: &str = ".drv";

/// Normalizes an absolute path without access to the file system.
///
/// Returns `None` for a relative path.
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

/// Returns whether a normalized path can be a store directory.
///
/// A directory must not have control characters or a space at the end, because the lines of
/// `nix-cache-info` are trimmed.
fn is_valid_store_dir(path: &str) -> bool {
    path != "/" && !path.ends_with(' ') && !path.contains(|c: char| c.is_control())
}

/// Folds a digest to 160 bits: byte `i` is combined with byte `i + 20` by exclusive or.
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
