//! What can be wrong with a NAR.

use crate::nar::DEPTH_MAX;

/// Why bytes are not a NAR. `offset` is where in the NAR the trouble begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarError {
    /// It does not begin with [`crate::nar::MAGIC`].
    #[error("cannot read NAR: it does not begin like one")]
    Magic,
    /// A word of the format is expected and something else stands there.
    #[error("cannot read NAR: expected {expected} at byte {offset}, found {found:?}")]
    Tag {
        /// Where it stands.
        offset: u64,
        /// What is expected.
        expected: &'static str,
        /// What is found.
        found: String,
    },
    /// A string is longer than the format allows in its place.
    #[error("cannot read NAR: string of {len} bytes at byte {offset}, more than {limit}, {max}")]
    StringTooLong {
        /// Where it stands.
        offset: u64,
        /// The length that it claims.
        len: u64,
        /// The name of the limit.
        limit: &'static str,
        /// The value of the limit.
        max: usize,
    },
    /// The zeros behind a string or a file are not zeros.
    #[error("cannot read NAR: padding at byte {offset} is not zero")]
    Padding {
        /// Where the padding begins.
        offset: u64,
    },
    /// A directory entry has a name that no file can have.
    #[error("cannot read NAR: invalid entry name {name:?} at byte {offset}")]
    Name {
        /// Where the name stands.
        offset: u64,
        /// The name.
        name: String,
    },
    /// A directory's entries are not sorted, or two have the same name.
    #[error("cannot read NAR: entry name {name:?} at byte {offset} is out of order")]
    Order {
        /// Where the later name stands.
        offset: u64,
        /// The later name.
        name: String,
    },
    /// A symlink has a target that no symlink can have.
    #[error("cannot read NAR: invalid symlink target {target:?} at byte {offset}")]
    Target {
        /// Where the target stands.
        offset: u64,
        /// The target.
        target: String,
    },
    /// Directories are nested too deep.
    #[error("cannot read NAR: nodes nested deeper than DEPTH_MAX, {DEPTH_MAX}, at byte {offset}")]
    TooDeep {
        /// Where the node begins that is too deep.
        offset: u64,
    },
    /// Bytes follow the end.
    #[error("cannot read NAR: bytes follow its end at byte {offset}")]
    TrailingBytes {
        /// Where it ended.
        offset: u64,
    },
    /// The bytes ended before the NAR.
    #[error("cannot read NAR: cut off at byte {offset}")]
    Truncated {
        /// Where the bytes ended.
        offset: u64,
    },
}
