//! Content addresses: the claim that a store path's name follows from its contents.

use std::collections::BTreeSet;
use std::fmt;

use floe_hash::Hasher;

use crate::hash::{Hash, HashAlgorithm, HashError};
use crate::store_path::{StoreDir, StorePath, StorePathError};

/// Why a text is no content address, or a content address implies no store path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentAddressError {
    /// It starts neither with `text:` nor with `fixed:`.
    #[error("cannot parse content address {0:?}: it starts neither with text: nor with fixed:")]
    Prefix(String),
    /// There is no colon between algorithm and digest.
    #[error("cannot parse content address {0:?}: no algorithm and digest follow the method")]
    Form(String),
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
    Algorithm(ContentAddress),
    /// Only NARs addressed by SHA-256, and texts, may have references.
    #[error("cannot make a store path of {0}: such a path cannot have these references")]
    References(ContentAddress),
    /// The name is not allowed in store paths.
    #[error(transparent)]
    Name(#[from] StorePathError),
}

/// What a content address is the hash of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Method {
    /// A text file, which may have references but none to itself. Derivations are such.
    Text,
    /// The bytes of a single file.
    Flat,
    /// The NAR of a file or a tree.
    NixArchive,
    /// The tree as Git hashes it; experimental in Nix and always understood here.
    Git,
}

impl Method {
    /// What stands before the algorithm in a content address, `fixed:` left out.
    pub fn prefix(self) -> &'static str {
        match self {
            Method::Text => "text:",
            Method::Flat => "",
            Method::NixArchive => "r:",
            Method::Git => "git:",
        }
    }
}

/// A method and the hash that it gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentAddress {
    /// What was hashed.
    pub method: Method,
    /// The result.
    pub hash: Hash,
}

impl ContentAddress {
    /// Parses the form that [`fmt::Display`] prints, with the digest in any encoding of fitting
    /// length.
    pub fn parse(text: &str) -> Result<ContentAddress, ContentAddressError> {
        let (method, rest) = if let Some(rest) = text.strip_prefix("text:") {
            (Method::Text, rest)
        } else if let Some(rest) = text.strip_prefix("fixed:") {
            if let Some(rest) = rest.strip_prefix("r:") {
                (Method::NixArchive, rest)
            } else if let Some(rest) = rest.strip_prefix("git:") {
                (Method::Git, rest)
            } else {
                (Method::Flat, rest)
            }
        } else {
            return Err(ContentAddressError::Prefix(text.into()));
        };
        let (name, digest) = rest
            .split_once(':')
            .ok_or_else(|| ContentAddressError::Form(text.into()))?;
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
            Method::Text if !is_sha256 => return Err(ContentAddressError::Algorithm(*self)),
            Method::Text if self_reference => return Err(ContentAddressError::References(*self)),
            Method::Text => "text",
            Method::NixArchive if is_sha256 => "source",
            _ if self_reference || !references.is_empty() => {
                return Err(ContentAddressError::References(*self));
            }
            _ => return self.fixed_output_path(dir, name),
        };
        let mut kind = kind.to_owned();
        for reference in references {
            kind.push(':');
            kind.push_str(&dir.print(reference));
        }
        if self_reference {
            kind.push_str(":self");
        }
        Ok(dir.make_path(&kind, &self.hash.to_base16(), name)?)
    }

    /// The path of everything but texts and SHA-256 NARs, which hashes method and hash once more.
    fn fixed_output_path(
        &self,
        dir: &StoreDir,
        name: &str,
    ) -> Result<StorePath, ContentAddressError> {
        let git_may_use = [HashAlgorithm::Sha1, HashAlgorithm::Sha256];
        if self.method == Method::Git && !git_may_use.contains(&self.hash.algorithm()) {
            return Err(ContentAddressError::Algorithm(*self));
        }
        let inner = format!(
            "fixed:out:{}{}:",
            self.method.prefix(),
            self.hash.to_base16()
        );
        let digest = Hash::sha256(floe_hash::sha256(inner.as_bytes()));
        Ok(dir.make_path("output:out", &digest.to_base16(), name)?)
    }
}

impl fmt::Display for ContentAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outer = if self.method == Method::Text {
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

/// Hashes contents as if they did not mention a given hash part.
///
/// Every occurrence counts as that many zero bytes; after the contents, the offset of each
/// occurrence is hashed as `|OFFSET`, so that contents with the hash part and contents with
/// zeros in its place differ. This is how the path of self-referential contents can follow from
/// the contents. Occurrences are found however the contents are cut into updates.
#[derive(Clone, Debug)]
pub struct ModuloHasher {
    hasher: Hasher,
    algorithm: HashAlgorithm,
    hash_part: Vec<u8>,
    // How far the window may move on, by the value of its last byte.
    skips: Box<[usize; 256]>,
    // Bytes not hashed yet. Between updates they are fewer than the hash part's, so that an
    // occurrence may still begin in them.
    pending: Vec<u8>,
    // Where `pending` starts in the contents.
    offset: u64,
    occurrences: Vec<u64>,
}

impl ModuloHasher {
    /// A stream that has seen no bytes. The hash part is the text to be ignored, commonly
    /// [`StorePath::hash_part`]; an empty one occurs nowhere.
    pub fn new(algorithm: HashAlgorithm, hash_part: &str) -> ModuloHasher {
        let hash_part = hash_part.as_bytes().to_vec();
        let mut skips = Box::new([hash_part.len(); 256]);
        let all_but_last = hash_part.len().saturating_sub(1);
        for (index, &byte) in hash_part.iter().take(all_but_last).enumerate() {
            if let Some(skip) = skips.get_mut(usize::from(byte)) {
                *skip = all_but_last - index;
            }
        }
        ModuloHasher {
            hasher: Hasher::new(algorithm),
            algorithm,
            hash_part,
            skips,
            pending: Vec::new(),
            offset: 0,
            occurrences: Vec::new(),
        }
    }

    /// Feeds the next bytes of the contents.
    pub fn update(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE_LEN) {
            self.pending.extend_from_slice(piece);
            self.erase_occurrences();
            let keep = self.hash_part.len().saturating_sub(1);
            self.hash_pending(self.pending.len().saturating_sub(keep));
        }
    }

    /// The hash of everything fed so far.
    pub fn finish(mut self) -> Hash {
        self.hash_pending(self.pending.len());
        for offset in &self.occurrences {
            self.hasher.update(format!("|{offset}").as_bytes());
        }
        let digest = self.hasher.finish();
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(&digest) {
            *to = *from;
        }
        Hash::from_padded(self.algorithm, bytes)
    }

    /// Zeroes the occurrences in `pending` and notes where they are, leftmost first.
    fn erase_occurrences(&mut self) {
        let len = self.hash_part.len();
        if len == 0 {
            return;
        }
        let mut start = 0;
        while let Some(window) = self.pending.get_mut(start..start + len) {
            if window == self.hash_part {
                window.fill(0);
                self.occurrences.push(self.offset + start as u64);
                start += len;
            } else {
                let last = window.last().map_or(0, |&byte| usize::from(byte));
                start += self.skips.get(last).copied().unwrap_or(1);
            }
        }
    }

    fn hash_pending(&mut self, len: usize) {
        if let Some(front) = self.pending.get(..len) {
            self.hasher.update(front);
            self.pending.drain(..len);
            self.offset += len as u64;
        }
    }
}

/// How much is copied, searched and hashed at a time: little enough to stay in the CPU's cache.
const PIECE_LEN: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH_PART: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

    fn abc(method: Method, algorithm: HashAlgorithm) -> ContentAddress {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(b"abc");
        ContentAddress {
            method,
            hash: Hash::new(algorithm, &hasher.finish()).unwrap(),
        }
    }

    fn modulo(contents: &[u8], cuts: &[usize]) -> Hash {
        let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, HASH_PART);
        let mut rest = contents;
        for cut in cuts {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            hasher.update(piece);
            rest = after;
        }
        hasher.update(rest);
        hasher.finish()
    }

    #[test]
    fn every_method_prints_and_parses() {
        for (method, prefix) in [
            (Method::Text, "text:sha256:"),
            (Method::Flat, "fixed:sha256:"),
            (Method::NixArchive, "fixed:r:sha256:"),
            (Method::Git, "fixed:git:sha256:"),
        ] {
            let address = abc(method, HashAlgorithm::Sha256);
            assert!(address.to_string().starts_with(prefix));
            assert_eq!(ContentAddress::parse(&address.to_string()), Ok(address));
            let hex = format!("{prefix}{}", address.hash.digest_base16());
            assert_eq!(ContentAddress::parse(&hex), Ok(address));
        }
    }

    #[test]
    fn malformed_content_addresses_are_refused() {
        let hash = abc(Method::Text, HashAlgorithm::Sha256).hash;
        for text in [
            String::new(),
            "text".into(),
            "text:".into(),
            "fixed:sha256".into(),
            "fixed:sha256:".into(),
            "fixed:r:r:".into(),
            hash.to_nix32(),
            format!("fixed:{}", hash.to_sri()),
            format!("recursive:{}", hash.to_nix32()),
            format!("text:r:{}", hash.to_nix32()),
            format!("fixed:sha512:{}", hash.digest_nix32()),
            format!("fixed: {}", hash.to_nix32()),
        ] {
            assert!(ContentAddress::parse(&text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_texts_and_sha256_nars_may_have_references() {
        let dir = StoreDir::default();
        let none = BTreeSet::new();
        let some = BTreeSet::from([StorePath::parse(&format!("{HASH_PART}-x")).unwrap()]);
        let path = |method, algorithm, references, own| {
            abc(method, algorithm).store_path(&dir, "x", references, own)
        };
        use HashAlgorithm::{Md5, Sha1, Sha256};
        assert!(path(Method::Text, Sha256, &some, false).is_ok());
        assert!(path(Method::Text, Sha256, &none, true).is_err());
        assert!(path(Method::Text, Sha1, &none, false).is_err());
        assert!(path(Method::NixArchive, Sha256, &some, true).is_ok());
        assert!(path(Method::NixArchive, Sha1, &none, false).is_ok());
        assert!(path(Method::NixArchive, Sha1, &some, false).is_err());
        assert!(path(Method::NixArchive, Sha1, &none, true).is_err());
        assert!(path(Method::Flat, Sha256, &none, false).is_ok());
        assert!(path(Method::Flat, Sha256, &some, false).is_err());
        assert!(path(Method::Git, Sha1, &none, false).is_ok());
        assert!(path(Method::Git, Md5, &none, false).is_err());
        assert!(
            abc(Method::Flat, Md5)
                .store_path(&dir, "a b", &none, false)
                .is_err()
        );
    }

    #[test]
    fn contents_without_the_hash_part_hash_as_ever() {
        for contents in [&b""[..], b"abc", &[b'7'; 1000], &HASH_PART.as_bytes()[1..]] {
            assert_eq!(
                modulo(contents, &[]),
                Hash::sha256(floe_hash::sha256(contents))
            );
        }
        let mut hasher = ModuloHasher::new(HashAlgorithm::Sha256, "");
        hasher.update(b"abc");
        assert_eq!(hasher.finish(), Hash::sha256(floe_hash::sha256(b"abc")));
    }

    #[test]
    fn occurrences_count_as_zeros_and_their_offsets_follow() {
        let contents = format!("ab{HASH_PART}{HASH_PART}c7bw2{HASH_PART}");
        let mut expected = b"ab".to_vec();
        expected.extend([0; 64]);
        expected.extend(b"c7bw2");
        expected.extend([0; 32]);
        expected.extend(b"|2|34|71");
        let expected = Hash::sha256(floe_hash::sha256(&expected));
        assert_eq!(modulo(contents.as_bytes(), &[]), expected);
        for cut in 0..=contents.len() {
            assert_eq!(
                modulo(contents.as_bytes(), &[cut, 1, 7]),
                expected,
                "cut at {cut}"
            );
        }
        assert_eq!(
            modulo(contents.as_bytes(), &vec![1; contents.len()]),
            expected
        );
    }

    #[test]
    fn occurrences_across_internal_pieces_are_found() {
        let mut contents = vec![b'.'; PIECE_LEN - 5];
        contents.extend(HASH_PART.as_bytes());
        let mut expected = vec![b'.'; PIECE_LEN - 5];
        expected.extend([0; 32]);
        expected.extend(format!("|{}", PIECE_LEN - 5).as_bytes());
        assert_eq!(
            modulo(&contents, &[]),
            Hash::sha256(floe_hash::sha256(&expected))
        );
    }

    proptest! {
        #[test]
        fn the_cuts_do_not_matter(
            pieces in prop::collection::vec(prop_oneof![Just(HASH_PART.to_owned()), "[7bw2dc]{0,40}"], 0..8),
            cuts in prop::collection::vec(0_usize..70, 0..8),
        ) {
            let contents = pieces.concat();
            prop_assert_eq!(modulo(contents.as_bytes(), &cuts), modulo(contents.as_bytes(), &[]));
        }
    }
}
