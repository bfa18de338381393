//! The identifiers of outputs of derivations.

use std::fmt;

use crate::hash::{Hash, HashError};
use crate::store_path::{StorePath, StorePathError};

/// Reason why a text does not identify an output of a derivation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrvOutputError {
    /// There is neither `!` nor `^` before the name of an output.
    #[error("cannot parse output {0:?}: it has neither '!' nor '^'")]
    NoSeparator(String),
    /// The name of the output is empty or has other characters than those of store paths.
    #[error("cannot parse output {0:?}: its name is empty or has invalid characters")]
    InvalidName(String),
    /// The text before `!` is not a hash.
    #[error("cannot parse output: {0}")]
    Hash(#[from] HashError),
    /// The text before `^` is not the base name of a store path.
    #[error("cannot parse output: {0}")]
    Path(#[from] StorePathError),
    /// The path before `^` does not end in `.drv`.
    #[error("cannot parse output: {0} is not a derivation")]
    NotADerivation(StorePath),
}

/// An output of a derivation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DrvOutput {
    key: DrvKey,
    name: String,
}

/// The identity of a derivation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DrvKey {
    /// The hash modulo fixed outputs, up to Nix 2.34: see
    /// [`output_hashes`](crate::Derivation::output_hashes).
    Hash(Hash),
    /// The path, in later versions.
    Path(StorePath),
}

impl DrvOutput {
    /// Makes the identifier of an output.
    ///
    /// Errors: [`DrvOutputError::InvalidName`], [`DrvOutputError::NotADerivation`].
    pub fn new(key: DrvKey, name: &str) -> Result<DrvOutput, DrvOutputError> {
        if !is_output_name(name) {
            return Err(DrvOutputError::InvalidName(name.into()));
        }
        match key {
            DrvKey::Path(path) if !path.is_derivation() => {
                Err(DrvOutputError::NotADerivation(path))
            }
            key => Ok(DrvOutput {
                key,
                name: name.into(),
            }),
        }
    }

    /// Parses `ALGORITHM:HASH!OUTPUT` or `HASH-NAME.drv^OUTPUT`.
    pub fn parse(text: &str) -> Result<DrvOutput, DrvOutputError> {
        if let Some((hash, name)) = text.split_once('!') {
            return DrvOutput::new(DrvKey::Hash(Hash::parse_prefixed(hash)?), name);
        }
        let (path, name) = text
            .rsplit_once('^')
            .ok_or_else(|| DrvOutputError::NoSeparator(text.into()))?;
        DrvOutput::new(DrvKey::Path(StorePath::parse(path)?), name)
    }

    /// Returns the identity of the derivation.
    pub fn key(&self) -> &DrvKey {
        &self.key
    }

    /// Returns the name of the output.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the object with the realisation in a binary cache.
    pub fn object_name(&self) -> String {
        match &self.key {
            DrvKey::Hash(_) => format!("{REALISATIONS}/{self}.doi"),
            DrvKey::Path(path) => format!("{BUILD_TRACE}/{path}/{}.doi", self.name),
        }
    }

    /// Parses the name of an object with a realisation.
    pub fn from_object_name(name: &str) -> Option<DrvOutput> {
        let (folder, rest) = name.strip_suffix(".doi")?.split_once('/')?;
        match folder {
            REALISATIONS => DrvOutput::parse(rest)
                .ok()
                .filter(|id| matches!(id.key, DrvKey::Hash(_))),
            BUILD_TRACE => {
                let (path, output) = rest.split_once('/')?;
                DrvOutput::new(DrvKey::Path(StorePath::parse(path).ok()?), output).ok()
            }
            _ => None,
        }
    }
}

impl fmt::Display for DrvOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            DrvKey::Hash(hash) => write!(formatter, "{}!{}", hash.to_base16(), self.name),
            DrvKey::Path(path) => write!(formatter, "{path}^{}", self.name),
        }
    }
}

/// Whether a text can be the name of an output: that of a store path, as in Nix.
pub fn is_output_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "+-._?=".contains(c);
    // A name of an output is a part of the name of a path and of a file.
    !name.is_empty() && name.len() <= OUTPUT_NAME_LEN_MAX && name.chars().all(is_valid)
}

/// The length of the longest name of a store path, in bytes.
const OUTPUT_NAME_LEN_MAX: usize = 211;

/// The folder of a binary cache with realisations by hash.
const REALISATIONS: &str = "realisations";

/// The folder with realisations by path.
const BUILD_TRACE: &str = "build-trace-v2";
