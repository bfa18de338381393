//! The faults of a peer.

use crate::version::Version;

/// A message that does not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message is not complete. This is not a fault: the caller reads on.
    #[error("the message ends after {len} bytes")]
    Incomplete {
        /// The number of bytes that are there.
        len: usize,
        /// The message has at least this number of bytes.
        needed: usize,
    },
    /// A length or a count exceeds its limit.
    #[error("{what} has the length {len}; at most {max} is allowed")]
    TooLong {
        /// The part of the message.
        what: &'static str,
        /// Its length: bytes of a text, or entries of a list.
        len: u64,
        /// The limit.
        max: u64,
    },
    /// The bytes that fill a text to a multiple of 8 are not zero.
    #[error("{what} is not padded with zeros")]
    Padding {
        /// The part of the message.
        what: &'static str,
    },
    /// A part of the message has no valid value.
    #[error("{what} is {value:?}: {reason}")]
    Value {
        /// The part of the message.
        what: &'static str,
        /// Its beginning, as text.
        value: String,
        /// The cause.
        reason: String,
    },
    /// The first bytes are not those of the protocol.
    #[error("it does not speak the protocol of the Nix daemon; its first bytes are {beginning:?}")]
    Magic {
        /// The first bytes, as text: a banner, for example.
        beginning: String,
    },
    /// The peer speaks a version that floe does not.
    #[error("it speaks version {found} of the protocol; floe needs {needed} or later")]
    Version {
        /// The version of the peer.
        found: Version,
        /// The oldest version that floe speaks.
        needed: Version,
    },
    /// Bytes arrived although no request was sent.
    #[error("it sends {len} bytes without a request")]
    Unexpected {
        /// Their number.
        len: usize,
    },
    /// The compressed bytes of another floe are invalid.
    #[error("its compressed bytes are invalid: {reason}")]
    Compression {
        /// The cause.
        reason: String,
    },
    /// A NAR breaks the format.
    #[error("the NAR of {path} is invalid: {reason}")]
    Nar {
        /// The base name of the path.
        path: String,
        /// The cause.
        reason: String,
    },
}

impl WireError {
    /// Makes the error of a part without a valid value.
    pub(crate) fn value(
        what: &'static str,
        value: impl AsRef<[u8]>,
        reason: impl ToString,
    ) -> WireError {
        WireError::Value {
            what,
            value: beginning(value.as_ref()),
            reason: reason.to_string(),
        }
    }
}

/// Returns the beginning of some bytes as text.
pub(crate) fn beginning(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(SHOWN_LEN_MAX)];
    String::from_utf8_lossy(bytes).into_owned()
}

/// Enough of a banner to recognise it.
const SHOWN_LEN_MAX: usize = 80;
