//! A reader of deterministic CBOR.

use super::{ARRAY, BYTES, FALSE, MAP, NULL, TEXT, TRUE, UINT};
use crate::{DecodeError, Problem, text};

/// The bytes of a message, and the position of the reader.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            len: bytes.len(),
        }
    }

    /// Returns an error if bytes remain.
    #[inline]
    pub fn end(&self) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.fault(Problem::Trailing(left))),
        }
    }

    /// Skips these bytes if they come next: a key with its head.
    #[inline]
    pub fn key<const N: usize>(&mut self, key: &[u8; N]) -> bool {
        match self.rest.split_first_chunk() {
            Some((next, rest)) if next == key => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Skips a null if it comes next.
    #[inline]
    pub fn null(&mut self) -> bool {
        self.key(&[NULL])
    }

    /// Reads a number.
    #[inline]
    pub fn uint(&mut self) -> Result<u64, DecodeError> {
        self.head(UINT)
    }

    /// Reads a bool.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.rest.split_first() {
            Some((&first @ (FALSE | TRUE), rest)) => {
                self.rest = rest;
                Ok(first == TRUE)
            }
            _ => Err(self.other("a bool")),
        }
    }

    /// Reads a text and borrows it.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.string(TEXT)?;
        let begin = self.position() - bytes.len();
        text::check(bytes).map_err(|valid| DecodeError::new(begin + valid, Problem::Encoding))
    }

    /// Reads bytes and borrows them.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        self.string(BYTES)
    }

    /// Reads the text of an enum value, and converts it with `from_text`.
    #[inline]
    pub fn value<T>(&mut self, from_text: impl Fn(&str) -> Option<T>) -> Result<T, DecodeError> {
        let before = self.clone();
        from_text(self.text()?).ok_or_else(|| before.fault(Problem::UnknownValue))
    }

    /// Returns an error if the next key was already seen.
    #[inline]
    pub fn once(&self, seen: bool) -> Result<(), DecodeError> {
        if seen {
            return Err(self.fault(Problem::DuplicateKey));
        }
        Ok(())
    }

    /// Reads the head of a list. Returns the number of elements, each of which has at least
    /// `element_min` bytes.
    #[inline]
    pub fn array(&mut self, element_min: usize) -> Result<usize, DecodeError> {
        let before = self.clone();
        let length = self.head(ARRAY)?;
        let left = self.rest.len();
        match usize::try_from(length) {
            Ok(count) if count <= left / element_min => Ok(count),
            _ => Err(before.fault(Problem::TooLong { length, left })),
        }
    }

    /// Reads the head of a map. Returns the number of fields.
    #[inline]
    pub fn map(&mut self) -> Result<u64, DecodeError> {
        self.head(MAP)
    }

    /// Creates an error at the current position.
    #[cold]
    pub fn fault(&self, problem: Problem) -> DecodeError {
        DecodeError::new(self.position(), problem)
    }

    #[inline]
    fn position(&self) -> usize {
        self.len - self.rest.len()
    }

    #[cold]
    fn other(&self, expected: &'static str) -> DecodeError {
        self.fault(match self.rest.first() {
            Some(&found) => Problem::Type { expected, found },
            None => Problem::Ends,
        })
    }

    /// Reads a text or byte string as bytes.
    #[inline]
    fn string(&mut self, major: u8) -> Result<&'a [u8], DecodeError> {
        let before = self.clone();
        let length = self.head(major)?;
        let len = usize::try_from(length).ok();
        let Some((bytes, rest)) = len.and_then(|len| self.rest.split_at_checked(len)) else {
            let left = self.rest.len();
            return Err(before.fault(Problem::TooLong { length, left }));
        };
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a head of this major type. Returns its number.
    #[inline]
    fn head(&mut self, major: u8) -> Result<u64, DecodeError> {
        match self.rest {
            [first, rest @ ..] if first ^ major < 24 => {
                self.rest = rest;
                Ok(u64::from(first ^ major))
            }
            [first, number, rest @ ..] if first ^ major == 24 && *number >= 24 => {
                self.rest = rest;
                Ok(u64::from(*number))
            }
            _ => self.long_head(major),
        }
    }

    /// Out of line, because it is rare in small messages.
    #[inline(never)]
    fn long_head(&mut self, major: u8) -> Result<u64, DecodeError> {
        let before = self.clone();
        let [first] = self.chunk()?;
        let (number, least) = match first ^ major {
            24 => (u64::from(u8::from_be_bytes(self.chunk()?)), 24),
            25 => (u64::from(u16::from_be_bytes(self.chunk()?)), 1 << 8),
            26 => (u64::from(u32::from_be_bytes(self.chunk()?)), 1 << 16),
            27 => (u64::from_be_bytes(self.chunk()?), 1 << 32),
            31 if major >= BYTES => return Err(before.fault(Problem::Indefinite)),
            _ => return Err(before.other(name(major))),
        };
        if number < least {
            return Err(before.fault(Problem::NotShortest));
        }
        Ok(number)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk() {
            Some((chunk, rest)) => {
                self.rest = rest;
                Ok(*chunk)
            }
            None => Err(self.fault(Problem::Ends)),
        }
    }
}

/// Returns the name of a major type for error messages.
fn name(major: u8) -> &'static str {
    match major {
        UINT => "a number",
        BYTES => "bytes",
        TEXT => "text",
        ARRAY => "a list",
        _ => "a map",
    }
}
