//! Decoding errors.

/// The reason why bytes are not a valid message: the message, its field, the offset and the
/// problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{details}")]
pub struct DecodeError {
    /// Boxed, so that a result fits into two registers and only failures pay for the details.
    details: Box<Details>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read {message}{dot}{field} at byte {offset}: {problem}",
    dot = if .field.is_empty() { "" } else { "." }
)]
struct Details {
    message: &'static str,
    field: &'static str,
    offset: usize,
    problem: Problem,
}

/// A problem of a CBOR or flat message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The value is incomplete.
    #[error("the value is incomplete")]
    Ends,
    /// A length or a count exceeds the remaining bytes.
    #[error("the length {length} exceeds the {left} remaining bytes")]
    TooLong {
        /// The length in the message.
        length: u64,
        /// The number of remaining bytes.
        left: usize,
    },
    /// The value has another type.
    #[error("expected {expected}, found a value that begins with the byte {found:#04x}")]
    Type {
        /// The type of the field.
        expected: &'static str,
        /// The first byte of the value.
        found: u8,
    },
    /// Deterministic CBOR allows only definite lengths.
    #[error("the length is indefinite, which deterministic CBOR does not allow")]
    Indefinite,
    /// Deterministic CBOR requires the shortest form of numbers and lengths.
    #[error("a number is not in its shortest form, which deterministic CBOR requires")]
    NotShortest,
    /// The text is not UTF-8.
    #[error("the text is not UTF-8")]
    Encoding,
    /// The message has no such field.
    #[error("the message has no field of this name")]
    UnknownKey,
    /// The field occurs twice.
    #[error("the field occurs twice")]
    DuplicateKey,
    /// A required field is absent.
    #[error("the field is missing")]
    Missing,
    /// The enum has no such value.
    #[error("the enum has no such value")]
    UnknownValue,
    /// Bytes follow the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// A flat message begins with `FLO1`.
    #[error("the bytes do not begin with the header of a flat message")]
    Header,
    /// The length in the header differs from the number of bytes.
    #[error("the header gives a length of {claimed} bytes, but there are {found}")]
    Length {
        /// The length in the header.
        claimed: u32,
        /// The number of bytes.
        found: usize,
    },
    /// The ID in the header belongs to another message, or to another version of the message.
    #[error("the header gives the message ID {found:#010x}, expected {expected:#010x}")]
    WrongMessage {
        /// The ID of the expected message.
        expected: u32,
        /// The ID in the header.
        found: u32,
    },
    /// A reference points outside of the contents.
    #[error("{length} bytes at offset {offset} are outside of the contents of the message")]
    Outside {
        /// The offset of the reference.
        offset: u64,
        /// The length of the reference in bytes.
        length: u64,
    },
    /// The elements of a list are not aligned to 8 bytes.
    #[error("the elements of a list at offset {0} are not aligned to 8 bytes")]
    Misaligned(u64),
    /// The text does not end with a NUL.
    #[error("no NUL follows the text")]
    NoNul,
    /// An unused part is not zero.
    #[error("an unused part is not zero")]
    NotZero,
    /// The value of a bool is neither 0 nor 1.
    #[error("the number {0} is not a bool")]
    NotBool(u64),
    /// The references overlap, so that a small message could expand to a large one.
    #[error("the references together span more than the whole message")]
    Overlap,
}

impl DecodeError {
    /// Out of line, so that the path without errors stays short.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(offset: usize, problem: Problem) -> DecodeError {
        let details = Box::new(Details {
            message: "",
            field: "",
            offset,
            problem,
        });
        DecodeError { details }
    }

    /// Adds the message and the field. Names that are already set stay.
    #[cold]
    #[inline(never)]
    #[doc(hidden)]
    pub fn within(mut self, message: &'static str, field: &'static str) -> DecodeError {
        if self.details.message.is_empty() {
            self.details.message = message;
            self.details.field = field;
        }
        self
    }

    /// Returns the name of the message.
    pub fn message(&self) -> &'static str {
        self.details.message
    }

    /// Returns the name of the field, or an empty text if the problem is in no field.
    pub fn field(&self) -> &'static str {
        self.details.field
    }

    /// Returns the offset in bytes.
    pub fn offset(&self) -> usize {
        self.details.offset
    }

    /// Returns the problem.
    pub fn problem(&self) -> &Problem {
        &self.details.problem
    }
}
