//! What can be wrong in a store.

use floe_format::{Hash, StoreDir, StorePath};

use crate::error::StoreError;

/// One thing that is wrong in a store.
#[derive(Debug)]
pub enum VerifyProblem {
    /// It was asked for, and the database does not have it.
    NotValid(StorePath),
    /// The database has it, the disk does not. `referrers` are valid paths that need it; Nix
    /// drops the row where there are none.
    Disappeared {
        /// The path.
        path: StorePath,
        /// Valid paths that refer to it.
        referrers: Vec<StorePath>,
    },
    /// Its contents are not those that were registered.
    Modified {
        /// The path.
        path: StorePath,
        /// The hash of its row.
        expected: Hash,
        /// The hash of its contents.
        actual: Hash,
    },
    /// Its NAR has another size than its row says, although the hash is right.
    WrongSize {
        /// The path.
        path: StorePath,
        /// The size of its row, in bytes.
        expected: u64,
        /// The size of its NAR, in bytes.
        actual: u64,
    },
    /// It could not be read.
    Unreadable {
        /// The path.
        path: StorePath,
        /// Why not.
        error: StoreError,
    },
    /// A link in `.links` has other contents than its name says.
    ModifiedLink {
        /// Its file name: the hash that it should have.
        name: String,
        /// The hash that it has, or why it has none.
        actual: String,
    },
}

impl VerifyProblem {
    /// What problems are sorted by.
    pub(super) fn path(&self) -> Option<&StorePath> {
        match self {
            VerifyProblem::NotValid(path)
            | VerifyProblem::Disappeared { path, .. }
            | VerifyProblem::Modified { path, .. }
            | VerifyProblem::WrongSize { path, .. }
            | VerifyProblem::Unreadable { path, .. } => Some(path),
            VerifyProblem::ModifiedLink { .. } => None,
        }
    }

    /// In words, with paths below `dir`.
    pub fn describe(&self, dir: &StoreDir) -> String {
        let print = |path: &StorePath| dir.full_path(path);
        match self {
            VerifyProblem::NotValid(path) => format!("path '{}' is not valid", print(path)),
            VerifyProblem::Disappeared { path, referrers } if referrers.is_empty() => {
                format!("path '{}' disappeared", print(path))
            }
            VerifyProblem::Disappeared { path, referrers } => {
                let referrers: Vec<String> = referrers.iter().map(print).collect();
                format!(
                    "path '{}' disappeared, and {} need it",
                    print(path),
                    referrers.join(", ")
                )
            }
            VerifyProblem::Modified {
                path,
                expected,
                actual,
            } => format!(
                "path '{}' was modified: expected hash '{}', got '{}'",
                print(path),
                expected.to_nix32(),
                actual.to_nix32()
            ),
            VerifyProblem::WrongSize {
                path,
                expected,
                actual,
            } => format!(
                "path '{}' has a wrong size in the database: expected {expected}, got {actual}",
                print(path)
            ),
            VerifyProblem::Unreadable { path, error } => format!("path '{}': {error}", print(path)),
            VerifyProblem::ModifiedLink { name, actual } => {
                format!("link .links/{name} was modified: got '{actual}'")
            }
        }
    }

    /// What it is about: a path below `dir`, or a link below the store directory.
    pub fn subject(&self, dir: &StoreDir) -> String {
        match self {
            VerifyProblem::ModifiedLink { name, .. } => format!(".links/{name}"),
            VerifyProblem::NotValid(path)
            | VerifyProblem::Disappeared { path, .. }
            | VerifyProblem::Modified { path, .. }
            | VerifyProblem::WrongSize { path, .. }
            | VerifyProblem::Unreadable { path, .. } => dir.full_path(path),
        }
    }
}
