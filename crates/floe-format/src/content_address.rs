//! Content addresses: the method and the hash from which a store path was computed.

use std::collections::BTreeSet;
use std::fmt;

use crate::hash::{Hash, HashAlgorithm, HashError};
use crate::store_path::{StoreDir, StorePath, StorePathError};

mod modulo_hasher;

pub use modulo_hasher::{ModuloHasher, ModuloHashes};

/// Reason why a text is not a valid content address, or has no store path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentAddressError {
    /// The prefix is neither `text:` nor `fixed:`.
    #[error("cannot parse content address {0:?}: it starts neither with text: nor with fixed:")]
    UnknownMethod(String),
    /// The part after the method is not an algorithm, a colon and a digest.
    #[error("cannot parse content address {0:?}: expected ALGORITHM:DIGEST after the method")]
    Syntax(String),
    /// The algorithm is unknown.
    #[error("cannot parse content address {text:?}: unknown algorithm {algorithm:?}")]
    UnknownAlgorithm {
        /// The whole content address.
        text: String,
        /// The name found.
        algorithm: String,
    },
    /// The digest is not valid.
    #[error("cannot parse content address {text:?}: {source}")]
    Hash {
        /// The whole content address.
        text: String,
        /// The error in the digest.
        source: HashError,
    },
    /// The method does not allow this algorithm.
    #[error("cannot compute the store path of {0}: its method does not allow its algorithm")]
    UnsupportedAlgorithm(ContentAddress),
    /// Only texts and SHA-256 NARs may have references, and texts none to themselves.
    #[error("cannot compute the store path of {0}: its method does not allow these references")]
    UnsupportedReferences(ContentAddress),
    /// The name is not valid in store paths.
    #[error(transparent)]
    Name(#[from] StorePathError),
}

/// The kind of data that a content address hashes, as in Nix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContentAddressMethod {
    /// A text file, such as a derivation. It may refer to other paths, but not to itself.
    Text,
    /// The bytes of a single file.
    Flat,
    /// The NAR of a file tree.
    NixArchive,
    /// The Git tree of a file tree. Experimental in Nix, always supported here.
    Git,
}

impl ContentAddressMethod {
    /// Returns the prefix in a content address, without `fixed:`.
    pub fn prefix(self) -> &'static str {
        match self {
            ContentAddressMethod::Text => "text:",
            ContentAddressMethod::Flat => "",
            ContentAddressMethod::NixArchive => "r:",
            ContentAddressMethod::Git => "git:",
        }
    }

    /// Returns the name of the method in the newest JSON of Nix.
    pub fn name(self) -> &'static str {
        match self {
            ContentAddressMethod::Text => "text",
            ContentAddressMethod::Flat => "flat",
            ContentAddressMethod::NixArchive => "nar",
            ContentAddressMethod::Git => "git",
        }
    }

    /// Splits a text such as `r:sha256` into the method for file trees and the rest.
    pub(crate) fn split_file_method(text: &str) -> (ContentAddressMethod, &str) {
        for method in [ContentAddressMethod::NixArchive, ContentAddressMethod::Git] {
            if let Some(rest) = text.strip_prefix(method.prefix()) {
                return (method, rest);
            }
        }
        (ContentAddressMethod::Flat, text)
    }
}

/// A content address: a method and the resulting hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentAddress {
    /// The kind of data that was hashed.
    pub method: ContentAddressMethod,
    /// The hash of the data.
    pub hash: Hash,
}

impl ContentAddress {
    /// Parses the form that [`fmt::Display`] prints.
    ///
    /// The digest may also be hexadecimal or base 64.
    pub fn parse(text: &str) -> Result<ContentAddress, ContentAddressError> {
        let (method, rest) = if let Some(rest) = text.strip_prefix("text:") {
            (ContentAddressMethod::Text, rest)
        } else if let Some(rest) = text.strip_prefix("fixed:") {
            ContentAddressMethod::split_file_method(rest)
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

    /// Computes the store path of contents with this address, a name and references.
    ///
    /// `references` must not contain the path itself, because the path is the result.
    /// `self_reference` states whether the contents refer to it.
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

    /// Computes the path for all but texts and SHA-256 NARs: it hashes the method and the hash.
    fn fixed_output_path(
        &self,
        dir: &StoreDir,
        name: &str,
    ) -> Result<StorePath, ContentAddressError> {
        let git_algorithms = [HashAlgorithm::Sha1, HashAlgorithm::Sha256];
        if self.method == ContentAddressMethod::Git
            && !git_algorithms.contains(&self.hash.algorithm())
        {
            return Err(ContentAddressError::UnsupportedAlgorithm(*self));
        }
        let hash = self.fixed_output_hash("").to_base16();
        Ok(dir.make_store_path("output:out", &hash, name)?)
    }

    /// Hashes the address and the path of a fixed output. The path is empty if it is the result.
    pub(crate) fn fixed_output_hash(&self, path: &str) -> Hash {
        let method = self.method.prefix();
        let text = format!("fixed:out:{method}{}:{path}", self.hash.to_base16());
        Hash::sha256(floe_hash::sha256(text.as_bytes()))
    }
}

impl fmt::Display for ContentAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outer = match self.method {
            ContentAddressMethod::Text => "",
            _ => "fixed:",
        };
        let method = self.method.prefix();
        write!(formatter, "{outer}{method}{}", self.hash.to_nix32())
    }
}

impl fmt::Debug for ContentAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests;
