//! The result of a rebuild.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use floe_format::{Hash, StorePath};
use floe_store::StoreError;
use floe_transfer::Error;

/// The result of a rebuild.
#[derive(Debug)]
pub struct RebuildReport {
    /// The sum of the NAR sizes of all registered paths, in bytes.
    pub nar_bytes: u64,
    /// The registered paths, sorted, by the source of their metadata.
    pub origins: BTreeMap<Origin, Vec<StorePath>>,
    /// The trees that were not registered, sorted by path.
    pub left_out: Vec<LeftOutPath>,
    /// The paths of the old database without a tree, sorted.
    pub vanished: Vec<StorePath>,
    /// The old database, under its new name, if it was damaged or has lost rows.
    pub saved: Option<PathBuf>,
    /// The errors of caches: the first of each.
    pub failures: Vec<Error>,
}

/// The source of the metadata of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The old database.
    Database,
    /// The cache with this name, with a trusted signature or with a content address.
    Cache(String),
    /// The name of the path, which follows from its contents.
    ContentAddress,
    /// The contents of the path alone.
    Unsigned,
}

/// A tree that was not registered.
#[derive(Debug)]
pub struct LeftOutPath {
    /// Its path.
    pub path: StorePath,
    /// Why not.
    pub reason: LeftOut,
}

/// Why a tree was not registered.
#[derive(Debug)]
pub enum LeftOut {
    /// It has no trusted metadata.
    Unsigned {
        /// The names of keys that are not trusted, of signatures in narinfos of caches.
        signed_by: BTreeSet<String>,
    },
    /// It has other contents than trusted metadata state.
    OtherContents {
        /// The NAR hash of the right contents.
        expected: Hash,
        /// The NAR hash on disk.
        actual: Hash,
        /// The source of the metadata.
        origin: Origin,
    },
    /// A cache has failed that may know the path.
    Unanswered,
    /// Another tree has the same hash part.
    SameHashPart,
    /// References of it are missing, or were not registered.
    MissingReferences(BTreeSet<StorePath>),
    /// It cannot be read, or it is a broken derivation.
    Refused(StoreError),
}

impl LeftOut {
    /// A name of the kind, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            LeftOut::Unsigned { .. } => "unsigned",
            LeftOut::OtherContents { .. } => "otherContents",
            LeftOut::Unanswered => "unanswered",
            LeftOut::SameHashPart => "sameHashPart",
            LeftOut::MissingReferences(_) => "missingReferences",
            LeftOut::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Database => f.write_str("the old database"),
            Origin::Cache(name) => f.write_str(name),
            Origin::ContentAddress => f.write_str("its content address"),
            Origin::Unsigned => f.write_str("its contents"),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeftOut::Unsigned { signed_by } if signed_by.is_empty() => f.write_str(
                "no cache has it with a trusted signature, and its name does not follow from its \
                 contents",
            ),
            LeftOut::Unsigned { signed_by } => {
                let keys: Vec<&str> = signed_by.iter().map(String::as_str).collect();
                write!(
                    f,
                    "it is signed only by keys that are not trusted ({})",
                    keys.join(", ")
                )
            }
            LeftOut::OtherContents {
                expected,
                actual,
                origin,
            } => write!(
                f,
                "its contents have the hash {}, and {origin} has {}",
                actual.to_sri(),
                expected.to_sri()
            ),
            LeftOut::Unanswered => f.write_str("a cache that may know it has failed"),
            LeftOut::SameHashPart => f.write_str(
                "another file has the same hash part; remove the one that is no store path",
            ),
            LeftOut::MissingReferences(missing) => {
                let count = missing.len();
                let first = missing.first().map_or("", StorePath::as_str);
                match count {
                    0 | 1 => write!(f, "its reference {first} is not valid"),
                    _ => write!(f, "{count} of its references are not valid (first {first})"),
                }
            }
            LeftOut::Refused(error) => error.fmt(f),
        }
    }
}
