//! The problems that a verification can find.

use floe_format::Hash;

use crate::db::DamagedRow;
use crate::error::StoreError;

/// One problem in a store.
#[derive(Debug, thiserror::Error)]
#[error("cannot verify {path}: {cause}")]
pub struct VerifyProblem {
    /// The full store path, `.links/NAME` for a link, or the text of a row that does not parse.
    pub path: String,
    /// The cause.
    #[source]
    pub cause: ProblemCause,
}

/// The cause of a problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemCause {
    /// The caller named the path, and the database does not have it.
    #[error("the path is not valid")]
    NotValid,
    /// The database has the path, and the disk does not. Nix deletes the row if no valid path
    /// refers to it.
    #[error("the path disappeared{}", describe_referrers(referrers))]
    Disappeared {
        /// The full paths of the valid paths that refer to it.
        referrers: Vec<String>,
    },
    /// The contents are not those that were registered.
    #[error("the contents have the hash {} instead of {}", actual.to_nix32(), expected.to_nix32())]
    Modified {
        /// The hash of its row.
        expected: Hash,
        /// The hash of the contents.
        actual: Hash,
    },
    /// The NAR has another size than the row states, although the hash is right.
    #[error("the NAR has {actual} bytes, and the database states {}", describe_size(*expected))]
    WrongSize {
        /// The size of its row, in bytes; 0 if the row has none.
        expected: u64,
        /// The size of the NAR, in bytes.
        actual: u64,
    },
    /// A row of the database does not parse.
    #[error("the database is damaged: {0}")]
    DamagedRow(DamagedRow),
    /// The path could not be read.
    #[error("{0}")]
    Unreadable(StoreError),
    /// The contents of a link in `.links` do not match its name. The text is the actual hash, or
    /// the reason why there is none.
    #[error("the contents do not match the name: {0}")]
    ModifiedLink(String),
}

/// The damage of a valid path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its files are gone.
    Missing,
    /// Its files do not match its NAR hash.
    Modified,
    /// Its row in the database does not parse.
    Row,
}

fn describe_size(size: u64) -> String {
    match size {
        0 => "no size".into(),
        size => size.to_string(),
    }
}

fn describe_referrers(referrers: &[String]) -> String {
    match referrers {
        [] => String::new(),
        [referrer] => format!(", and {referrer} needs it"),
        _ => format!(", and {} need it", referrers.join(", ")),
    }
}
