//! Content addresses: the claim that a store path's name follows from its contents.

use std::collections::BTreeSet;
use std::fmt;

use crate::hash::{Hash, HashAlgorithm, HashError};
use crate::store_path::{StoreDir, StorePath, StorePathError};

mod modulo_hasher;

pub use modulo_hasher::{ModuloHasher, ModuloHashes};

/// Why a text is no content address, or a content address implies no store path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentAddressError {
    /// It starts neither with `text:` nor with `fixed:`.
    #[error("cannot parse content address {0:?}: it starts neither with text: nor with fixed:")]
    UnknownMethod(String),
    /// There is no colon between algorithm and digest.
    #[error("cannot parse content address {0:?}: no algorithm and digest follow the method")]
    Syntax(String),
    /// The name of the algorithm is unknown.
    #[error("cannot parse content address {text:?}: unknown algorithm {algorithm:?}")]
    UnknownAlgorithm {
        /// The whole content address.
        text: String,
        /// The name found.
        algorithm: String,
    },
    /// The digest is damaged.
    #[error("cannot parse content address {text:?}: {source}")]
    Hash {
        /// The whole content address.
        text: String,
        /// What is wrong with it.
        source: HashError,
    },
    /// The method cannot go with this algorithm.
    #[error("cannot make a store path of {0}: its method does not go with its algorithm")]
    UnsupportedAlgorithm(ContentAddress),
    /// Only NARs addressed by SHA-256, and texts, may have references.
    #[error("cannot make a store path of {0}: such a path cannot have these references")]
    UnsupportedReferences(ContentAddress),
    /// The name is not allowed in store paths.
    #[error(transparent)]
    Name(#[from] StorePathError),
}

/// What a content address is the hash of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContentAddressMethod {
    /// A text file, which may have references but none to itself. Derivations are such.
    Text,
    /// The bytes of a single file.
    Flat,
    /// The NAR of a file or a tree.
    NixArchive,
    /// The tree as Git hashes it; experimental in Nix and always understood here.
    Git,
}

impl ContentAddressMethod {
    /// What stands before the algorithm in a content address, `fixed:` left out.
    pub fn prefix(self) -> &'static str {
        match self {
            ContentAddressMethod::Text => "text:",
            ContentAddressMethod::Flat => "",
            ContentAddressMethod::NixArchive => "r:",
            ContentAddressMethod::Git => "git:",
        }
    }
}

/// A method and the hash that it gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentAddress {
    /// What was hashed.
    pub method: ContentAddressMethod,
    /// The result.
    pub hash: Hash,
}

impl ContentAddress {
    /// Parses the form that [`fmt::Display`] prints, with the digest in any encoding of fitting
    /// length.
    pub fn parse(text: &str) -> Result<ContentAddress, ContentAddressError> {
        let (method, rest) = if let Some(rest) = text.strip_prefix("text:") {
            (ContentAddressMethod::Text, rest)
        } else if let Some(rest) = text.strip_prefix("fixed:") {
            if let Some(rest) = rest.strip_prefix("r:") {
                (ContentAddressMethod::NixArchive, rest)
            } else if let Some(rest) = rest.strip_prefix("git:") {
                (ContentAddressMethod::Git, rest)
            } else {
                (ContentAddressMethod::Flat, rest)
            }
        } else {
            return Err(ContentAddressError::UnknownMethod(text.into()));
        };
        let (name, digest) = rest
            .split_once(':')
            .ok_or_else(|| ContentAddressError::Syntax(text.into()))?;
        let algorithm = HashAlgorithm::from_name(name).ok_or_else(|| {
            ContentAddressError::UnknownAlgorithm {
                text: text.into(),
                algorithm: name.into(),
            }
        })?;
        let hash = Hash::parse_unprefixed(digest, algorithm).map_err(|source| {
            ContentAddressError::Hash {
                text: text.into(),
                source,
            }
        })?;
        Ok(ContentAddress { method, hash })
    }

    /// The store path that this content address, a name and references imply.
    ///
    /// `references` must not contain the path itself, whose hash part is not known before:
    /// `self_reference` says that the contents mention it.
    pub fn store_path(
        &self,
        dir: &StoreDir,
        name: &str,
        references: &BTreeSet<StorePath>,
        self_reference: bool,
    ) -> Result<StorePath, ContentAddressError> {
        let is_sha256 = self.hash.algorithm() == HashAlgorithm::Sha256;
        let kind = match self.method {
            ContentAddressMethod::Text if !is_sha256 => {
                return Err(ContentAddressError::UnsupportedAlgorithm(*self));
            }
            ContentAddressMethod::Text if self_reference => {
                return Err(ContentAddressError::UnsupportedReferences(*self));
            }
            ContentAddressMethod::Text => "text",
            ContentAddressMethod::NixArchive if is_sha256 => "source",
            _ if self_reference || !references.is_empty() => {
                return Err(ContentAddressError::UnsupportedReferences(*self));
            }
            _ => return self.fixed_output_path(dir, name),
        };
        let mut kind = kind.to_owned();
        for reference in references {
            kind.push(':');
            kind.push_str(&dir.full_path(reference));
        }
        if self_reference {
            kind.push_str(":self");
        }
        Ok(dir.make_store_path(&kind, &self.hash.to_base16(), name)?)
    }

    /// The path of everything but texts and SHA-256 NARs, which hashes method and hash once more.
    fn fixed_output_path(
        &self,
        dir: &StoreDir,
        name: &str,
    ) -> Result<StorePath, ContentAddressError> {
        let git_may_use = [HashAlgorithm::Sha1, HashAlgorithm::Sha256];
        if self.method == ContentAddressMethod::Git && !git_may_use.contains(&self.hash.algorithm())
        {
            return Err(ContentAddressError::UnsupportedAlgorithm(*self));
        }
        let inner = format!(
            "fixed:out:{}{}:",
            self.method.prefix(),
            self.hash.to_base16()
        );
        let digest = Hash::sha256(floe_hash::sha256(inner.as_bytes()));
        Ok(dir.make_store_path("output:out", &digest.to_base16(), name)?)
    }
}

impl fmt::Display for ContentAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outer = if self.method == ContentAddressMethod::Text {
            ""
        } else {
            "fixed:"
        };
        write!(
            formatter,
            "{outer}{}{}",
            self.method.prefix(),
            self.hash.to_nix32()
        )
    }
}

impl fmt::Debug for ContentAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests;
