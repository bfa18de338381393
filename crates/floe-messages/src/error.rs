//! What can be wrong with the bytes of a message.

use std::fmt;

/// Why bytes are not a message: what was being read, where, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{details}")]
pub struct DecodeError {
    /// Boxed, so that a result fits into two registers; only what fails pays for it.
    details: Box<Details>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    message: &'static str,
    field: &'static str,
    offset: usize,
    problem: Problem,
}

/// What is wrong, in CBOR or in flat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The value is not all there.
    #[error("the bytes end before the value does")]
    Ends,
    /// A length or a count is larger than what can follow.
    #[error("its length is {length}, more than the {left} bytes that are left can hold")]
    TooLong {
        /// What the bytes say.
        length: u64,
        /// What there is.
        left: usize,
    },
    /// A value of another kind.
    #[error("expected {expected}, found one that begins with the byte {found:#04x}")]
    Type {
        /// What the field takes.
        expected: &'static str,
        /// What a value here begins with.
        found: u8,
    },
    /// Lengths are definite in deterministic CBOR.
    #[error("its length is indefinite, which deterministic CBOR does not allow")]
    Indefinite,
    /// Numbers and lengths take the shortest form that holds them.
    #[error("a number is not in its shortest form, as deterministic CBOR demands")]
    NotShortest,
    /// Text that is none.
    #[error("the text is not UTF-8")]
    Encoding,
    /// A key that the message does not have.
    #[error("the message has no field of this name")]
    UnknownKey,
    /// A key for the second time.
    #[error("the field is there twice")]
    DuplicateKey,
    /// A required field is absent.
    #[error("the field is missing")]
    Missing,
    /// A value that the enum does not have.
    #[error("the value is none of those of its enum")]
    UnknownValue,
    /// Something behind the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// Flat begins with `FLO1`.
    #[error("the bytes do not begin with the header of a flat message")]
    Header,
    /// The header says another length.
    #[error("the header says {said} bytes and there are {found}")]
    Length {
        /// What the header says.
        said: u32,
        /// What there is.
        found: usize,
    },
    /// Another message, or the same one of another version.
    #[error("the header says message {found:#010x}, expected {expected:#010x}")]
    WrongMessage {
        /// The one that was to be read.
        expected: u32,
        /// The one that the header names.
        found: u32,
    },
    /// A reference that leaves the contents.
    #[error("{length} bytes at offset {offset} are not within the contents of the message")]
    Outside {
        /// Where the reference leads.
        offset: u64,
        /// How many bytes it spans.
        length: u64,
    },
    /// The elements of a list stand at a multiple of 8.
    #[error("the elements of a list at offset {0} are not aligned to 8 bytes")]
    Misaligned(u64),
    /// Text is followed by a NUL.
    #[error("no NUL follows the text")]
    NoNul,
    /// What has to be zero is not.
    #[error("an unused part is not zero")]
    NotZero,
    /// Neither 0 nor 1.
    #[error("the number {0} is not a bool")]
    NotBool(u64),
    /// References share contents, so that little could stand for much.
    #[error("what the references span together is more than the whole message")]
    Overlap,
}

impl DecodeError {
    /// Out of line, so that the way without errors stays short.
    #[cold]
    #[inline(never)]
    pub(crate) fn new(offset: usize, problem: Problem) -> DecodeError {
        let details = Details {
            message: "",
            field: "",
            offset,
            problem,
        };
        DecodeError {
            details: Box::new(details),
        }
    }

    /// Says what was being read; the innermost name stays.
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

    /// The message that was being read.
    pub fn message(&self) -> &'static str {
        self.details.message
    }

    /// Its field, or nothing where the fault is in none.
    pub fn field(&self) -> &'static str {
        self.details.field
    }

    /// Where, in bytes from the start.
    pub fn offset(&self) -> usize {
        self.details.offset
    }

    /// What is wrong.
    pub fn problem(&self) -> &Problem {
        &self.details.problem
    }
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read {}", self.message)?;
        if !self.field.is_empty() {
            write!(f, ".{}", self.field)?;
        }
        write!(f, " at byte {}: {}", self.offset, self.problem)
    }
}
