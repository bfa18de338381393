//! The errors of narinfos.

use crate::compression::CompressionError;
use crate::content_address::ContentAddressError;
use crate::hash::{HashAlgorithm, HashError};
use crate::narinfo::NARINFO_LEN_MAX;
use crate::signature::SignatureError;
use crate::store_path::StorePathError;

/// Reason why bytes are not a valid narinfo. The first line is line 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarInfoError {
    /// The narinfo is longer than [`NARINFO_LEN_MAX`].
    #[error("cannot parse narinfo: longer than {NARINFO_LEN_MAX} bytes")]
    TooLong(usize),
    /// The text is HTML or XML, probably the page of a proxy or of a login.
    #[error("cannot parse narinfo: a web page came instead")]
    WebPage,
    /// A line has no colon.
    #[error("cannot parse narinfo: line {line} has no colon")]
    NoColon {
        /// The number of the line.
        line: usize,
    },
    /// The last line has no newline at its end.
    #[error("cannot parse narinfo: line {line} does not end in a newline")]
    NoNewline {
        /// The number of the line.
        line: usize,
    },
    /// A field occurs twice that may occur only once.
    #[error("cannot parse narinfo: line {line} repeats {field}")]
    Duplicate {
        /// The number of the line.
        line: usize,
        /// The name of the field.
        field: &'static str,
    },
    /// A required field is absent, empty or zero.
    #[error("cannot parse narinfo: {0} is missing")]
    Missing(&'static str),
    /// The value of a field is not valid.
    #[error("cannot parse narinfo: line {line}, field {field}: {problem}")]
    Field {
        /// The number of the line.
        line: usize,
        /// The name of the field.
        field: &'static str,
        /// The error in the value.
        problem: FieldProblem,
    },
}

/// Reason why the value of a field is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// The value is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
    /// The value is not a decimal number of 64 bits.
    #[error("{0:?} is not a number below 2^64")]
    Number(String),
    /// The value is not a valid hash.
    #[error("{0}")]
    Hash(#[from] HashError),
    /// The value is a hash of another algorithm than SHA-256.
    #[error("expected a sha256 hash, found {}", .0.name())]
    NarHashAlgorithm(HashAlgorithm),
    /// The value is not a valid store path.
    #[error("{0}")]
    StorePath(#[from] StorePathError),
    /// The value is not the name of a compression method.
    #[error("{0}")]
    Compression(#[from] CompressionError),
    /// The value is not a valid signature.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// The value is not a valid content address.
    #[error("{0}")]
    ContentAddress(#[from] ContentAddressError),
}
