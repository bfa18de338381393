//! What can be wrong with a narinfo.

use crate::compression::CompressionError;
use crate::content_address::ContentAddressError;
use crate::hash::{HashAlgorithm, HashError};
use crate::narinfo::NARINFO_LEN_MAX;
use crate::signature::SignatureError;
use crate::store_path::StorePathError;

/// Why bytes are not a narinfo. Lines are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarInfoError {
    /// It is longer than [`NARINFO_LEN_MAX`].
    #[error(
        "cannot parse narinfo of {0} bytes: longer than NARINFO_LEN_MAX, {NARINFO_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// A line has no colon.
    #[error("cannot parse narinfo: line {line} has no colon")]
    NoColon {
        /// The line.
        line: usize,
    },
    /// The last line does not end in a newline.
    #[error("cannot parse narinfo: line {line} does not end in a newline")]
    NoNewline {
        /// The line.
        line: usize,
    },
    /// A field comes twice that may come once only.
    #[error("cannot parse narinfo: line {line} has {field} once more")]
    Duplicate {
        /// The line.
        line: usize,
        /// The field's name.
        field: &'static str,
    },
    /// A field is absent, or empty or zero where that means nothing.
    #[error("cannot parse narinfo: {0} is missing")]
    Missing(&'static str),
    /// The value of a field is not valid.
    #[error("cannot parse narinfo: line {line}, field {field}: {problem}")]
    Field {
        /// The line.
        line: usize,
        /// The field's name.
        field: &'static str,
        /// What is wrong with the value.
        problem: FieldProblem,
    },
}

/// What is wrong with the value of a field of a narinfo.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// It is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// It is not a number, or one beyond 64 bits.
    #[error("{0:?} is not a number below 2^64")]
    Number(String),
    /// It is no hash.
    #[error("{0}")]
    Hash(#[from] HashError),
    /// It is a hash of an algorithm that NARs are not hashed with.
    #[error("NARs are hashed with sha256, not {}", .0.name())]
    NarHashAlgorithm(HashAlgorithm),
    /// It is no store path.
    #[error("{0}")]
    StorePath(#[from] StorePathError),
    /// It names no compression method.
    #[error("{0}")]
    Compression(#[from] CompressionError),
    /// It is no signature.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// It is no content address.
    #[error("{0}")]
    ContentAddress(#[from] ContentAddressError),
}
