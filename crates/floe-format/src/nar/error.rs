//! The errors of NARs.

use crate::nar::DEPTH_MAX;

/// Reason why bytes are not a valid NAR. `offset` counts bytes from the start of the NAR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarError {
    /// The first string is not [`crate::nar::MAGIC`].
    #[error("cannot read NAR: it does not start with nix-archive-1")]
    Magic,
    /// The format requires another tag.
    #[error("cannot read NAR: expected {expected} at byte {offset}, found {found:?}")]
    Tag {
        /// Where the tag starts.
        offset: u64,
        /// The expected tag or tags.
        expected: &'static str,
        /// The string found.
        found: String,
    },
    /// A string is longer than the format allows at its position.
    #[error(
        "cannot read NAR: {kind} at byte {offset} has {len} bytes, more than the limit of {max}"
    )]
    StringTooLong {
        /// Where the string starts.
        offset: u64,
        /// The length in front of the string.
        len: u64,
        /// The kind of string, such as a tag or an entry name.
        kind: &'static str,
        /// The maximum length of this kind of string.
        max: usize,
    },
    /// The padding after a string or after the contents of a file is not zero.
    #[error("cannot read NAR: padding at byte {offset} is not zero")]
    Padding {
        /// Where the padding starts.
        offset: u64,
    },
    /// A directory entry has a name that no file can have.
    #[error("cannot read NAR: invalid entry name {name:?} at byte {offset}")]
    Name {
        /// Where the name starts.
        offset: u64,
        /// The name.
        name: String,
    },
    /// The entries of a directory are not sorted, or two of them have the same name.
    #[error("cannot read NAR: entry name {name:?} at byte {offset} is out of order")]
    Order {
        /// Where the later name starts.
        offset: u64,
        /// The later name.
        name: String,
    },
    /// A symlink has a target that no symlink can have.
    #[error("cannot read NAR: invalid symlink target {target:?} at byte {offset}")]
    Target {
        /// Where the target starts.
        offset: u64,
        /// The target.
        target: String,
    },
    /// Nodes are nested deeper than [`DEPTH_MAX`].
    #[error("cannot read NAR: nodes nested deeper than {DEPTH_MAX} levels at byte {offset}")]
    TooDeep {
        /// Where the node starts that is too deep.
        offset: u64,
    },
    /// There are bytes after the end.
    #[error("cannot read NAR: extra bytes after its end at byte {offset}")]
    TrailingBytes {
        /// Where the NAR ended.
        offset: u64,
    },
    /// The input ended before the NAR.
    #[error("cannot read NAR: truncated at byte {offset}")]
    Truncated {
        /// Where the input ended.
        offset: u64,
    },
}
