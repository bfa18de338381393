//! The problems that a verification can find.

use floe_format::{Hash, StoreDir, StorePath};

use crate::error::StoreError;

/// One problem in a store.
#[derive(Debug)]
pub enum VerifyProblem {
    /// The caller named the path, and the database does not have it.
    NotValid(StorePath),
    /// The database has the path, and the disk does not. Nix deletes the row if no valid path
    /// refers to it.
    Disappeared {
        /// The path.
        path: StorePath,
        /// Valid paths that refer to it.
        referrers: Vec<StorePath>,
    },
    /// The contents are not those that were registered.
    Modified {
        /// The path.
        path: StorePath,
        /// The hash of its row.
        expected: Hash,
        /// The hash of the contents.
        actual: Hash,
    },
    /// The NAR has another size than the row states, although the hash is right.
    WrongSize {
        /// The path.
        path: StorePath,
        /// The size of its row, in bytes.
        expected: u64,
        /// The size of the NAR, in bytes.
        actual: u64,
    },
    /// The path could not be read.
    Unreadable {
        /// The path.
        path: StorePath,
        /// The reason.
        error: StoreError,
    },
    /// The contents of a link in `.links` do not match its name.
    ModifiedLink {
        /// The file name: the expected hash.
        name: String,
        /// The actual hash, or the reason why there is none.
        actual: String,
    },
}

impl VerifyProblem {
    /// The sort key.
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

    /// Describes the problem, with full paths below `dir`.
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

    /// The affected file: a path below `dir`, or a link below the store directory.
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
