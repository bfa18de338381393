//! Takes CBOR from the front of bytes, and refuses what is not deterministic.

use super::{ARRAY, BYTES, FALSE, MAP, NULL, TEXT, TRUE, UINT};
use crate::{DecodeError, Problem, text};

/// The bytes of a message and how far they were read.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    /// At the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            rest: bytes,
            len: bytes.len(),
        }
    }

    /// Nothing is left.
    #[inline]
    pub fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.fault(Problem::Trailing(self.rest.len())))
        }
    }

    /// Goes past these bytes if they come next: a key with its head.
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

    /// Goes past a null if one comes next.
    #[inline]
    pub fn null(&mut self) -> bool {
        self.key(&[NULL])
    }

    /// Takes a number.
    #[inline]
    pub fn uint(&mut self) -> Result<u64, DecodeError> {
        self.head(UINT)
    }

    /// Takes true or false.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.rest.split_first() {
            Some((&first @ (FALSE | TRUE), rest)) => {
                self.rest = rest;
                Ok(first == TRUE)
            }
            _ => Err(self.other("true or false")),
        }
    }

    /// Takes text, which is borrowed.
    #[inline]
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.string(TEXT)?;
        text::check(bytes).map_err(|valid| self.not_text(bytes, valid))
    }

    /// Takes bytes, which are borrowed.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        self.string(BYTES)
    }

    /// Takes the text of a value that `from_text` knows.
    #[inline]
    pub fn value<T>(&mut self, from_text: impl Fn(&str) -> Option<T>) -> Result<T, DecodeError> {
        let before = self.clone();
        from_text(self.text()?).ok_or_else(|| before.fault(Problem::UnknownValue))
    }

    /// The key that comes next was not seen before.
    #[inline]
    pub fn once(&self, seen: bool) -> Result<(), DecodeError> {
        if seen {
            return Err(self.fault(Problem::DuplicateKey));
        }
        Ok(())
    }

    /// Takes the head of a list and says how many elements follow, each of which has at least
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

    /// Takes the head of a map and says how many fields follow.
    #[inline]
    pub fn map(&mut self) -> Result<u64, DecodeError> {
        self.head(MAP)
    }

    /// An error about what comes next.
    #[cold]
    pub fn fault(&self, problem: Problem) -> DecodeError {
        DecodeError::new(self.len - self.rest.len(), problem)
    }

    #[cold]
    fn other(&self, expected: &'static str) -> DecodeError {
        self.fault(match self.rest.first() {
            Some(&found) => Problem::Type { expected, found },
            None => Problem::Ends,
        })
    }

    #[cold]
    fn not_text(&self, bytes: &[u8], valid: usize) -> DecodeError {
        let begin = self.len - self.rest.len() - bytes.len();
        DecodeError::new(begin + valid, Problem::Encoding)
    }

    /// Text or bytes, as bytes.
    #[inline]
    fn string(&mut self, major: u8) -> Result<&'a [u8], DecodeError> {
        let before = self.clone();
        let length = self.head(major)?;
        let whole = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.split_at_checked(length));
        match whole {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => {
                let left = self.rest.len();
                Err(before.fault(Problem::TooLong { length, left }))
            }
        }
    }

    /// The number in a head of this major type.
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

    /// Rare in small messages, and so out of line.
    #[inline(never)]
    fn long_head(&mut self, major: u8) -> Result<u64, DecodeError> {
        let before = self.clone();
        let (number, least) = match self.byte()? ^ major {
            24 => (u64::from(self.byte()?), 24),
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
    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.chunk().map(|[byte]| byte)
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

/// What a head of this major type begins, for people.
fn name(major: u8) -> &'static str {
    match major {
        UINT => "a number that is not negative",
        BYTES => "bytes",
        TEXT => "text",
        ARRAY => "a list",
        _ => "a map",
    }
}
