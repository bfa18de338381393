//! A reader of flat messages, which checks and borrows.

use super::{HEADER_LEN, MAGIC, SLOT_LEN};
use crate::{DecodeError, Problem, text};

/// The bytes of a message, and the number of bytes that references may still span.
#[derive(Debug)]
pub struct Reader<'a> {
    pub(crate) bytes: &'a [u8],
    budget: u64,
}

/// The fixed part of a message.
#[derive(Debug)]
pub struct Fixed<'a, const N: usize> {
    bytes: &'a [u8; N],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Checks the header.
    #[inline]
    pub fn open(bytes: &'a [u8], id: u32) -> Result<Reader<'a>, DecodeError> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(DecodeError::new(0, Problem::Header));
        };
        let header = Fixed {
            bytes: header,
            at: 0,
        };
        let (magic, claimed) = split(header.uint(0));
        let (message, zero) = split(header.uint(SLOT_LEN));
        let (found, expected) = (bytes.len(), id);
        let (at, problem) = if magic != u64::from(u32::from_le_bytes(MAGIC)) {
            (0, Problem::Header)
        } else if claimed != found as u64 {
            let claimed = claimed as u32;
            (4, Problem::Length { claimed, found })
        } else if message != u64::from(expected) {
            let found = message as u32;
            (8, Problem::WrongMessage { expected, found })
        } else if zero != 0 {
            (12, Problem::NotZero)
        } else {
            return Ok(Reader::again(bytes));
        };
        Err(DecodeError::new(at, problem))
    }

    /// Creates a reader for bytes that were already checked.
    #[inline]
    pub(crate) fn again(bytes: &'a [u8]) -> Reader<'a> {
        Reader {
            bytes,
            budget: bytes.len() as u64,
        }
    }

    /// Returns the fixed part that begins at `at`.
    #[inline]
    pub fn fixed<const N: usize>(&self, at: usize) -> Result<Fixed<'a, N>, DecodeError> {
        match self.bytes.get(at..).and_then(<[u8]>::first_chunk) {
            Some(bytes) => Ok(Fixed { bytes, at }),
            None => Err(DecodeError::new(at, Problem::Ends)),
        }
    }

    /// Reads a text. Offset 0 means empty.
    #[inline]
    pub fn text<const N: usize>(
        &mut self,
        fixed: &Fixed<'a, N>,
        slot: usize,
    ) -> Result<&'a str, DecodeError> {
        let reference = fixed.uint(slot);
        if reference == 0 {
            return Ok("");
        }
        let (offset, length) = split(reference);
        let bytes = self.span(fixed.at + slot, offset, length + 1)?;
        let Some((0, text)) = bytes.split_last() else {
            return Err(DecodeError::new((offset + length) as usize, Problem::NoNul));
        };
        text::check(text)
            .map_err(|valid| DecodeError::new(offset as usize + valid, Problem::Encoding))
    }

    /// Reads bytes. Offset 0 means empty.
    #[inline]
    pub fn bytes<const N: usize>(
        &mut self,
        fixed: &Fixed<'a, N>,
        slot: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let reference = fixed.uint(slot);
        if reference == 0 {
            return Ok(&[]);
        }
        let (offset, length) = split(reference);
        self.span(fixed.at + slot, offset, length)
    }

    /// Reads an optional text or optional bytes with `read`. Offset 0 means absent.
    #[inline]
    pub fn optional<const N: usize, T>(
        &mut self,
        fixed: &Fixed<'a, N>,
        slot: usize,
        read: impl FnOnce(&mut Self, &Fixed<'a, N>, usize) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        match fixed.uint(slot) {
            0 => Ok(None),
            _ => read(self, fixed, slot).map(Some),
        }
    }

    /// Returns the offset and the number of the elements of a list, each of which has `element_len`
    /// bytes. Returns `None` for an empty list. Does not check the elements.
    #[inline]
    pub fn elements<const N: usize>(
        &mut self,
        fixed: &Fixed<'a, N>,
        slot: usize,
        element_len: usize,
    ) -> Result<Option<(u32, u32)>, DecodeError> {
        let (reference, at) = (fixed.uint(slot), fixed.at + slot);
        if reference == 0 {
            return Ok(None);
        }
        let (offset, count) = split(reference);
        if count == 0 {
            return Err(DecodeError::new(at, Problem::NotZero));
        }
        if !offset.is_multiple_of(SLOT_LEN as u64) {
            return Err(DecodeError::new(at, Problem::Misaligned(offset)));
        }
        self.span(at, offset, count * element_len as u64)?;
        Ok(Some((offset as u32, count as u32)))
    }

    /// Returns the bytes of the reference at `at`. The sums cannot overflow: offsets and counts
    /// have 32 bits, and fixed parts are short.
    #[inline]
    fn span(&mut self, at: usize, offset: u64, length: u64) -> Result<&'a [u8], DecodeError> {
        let end = offset + length;
        if offset < HEADER_LEN as u64 || end > self.bytes.len() as u64 {
            return Err(DecodeError::new(at, Problem::Outside { offset, length }));
        }
        match self.budget.checked_sub(length) {
            Some(left) => self.budget = left,
            None => return Err(DecodeError::new(at, Problem::Overlap)),
        }
        // Both are at most the length of `bytes`.
        Ok(&self.bytes[offset as usize..end as usize])
    }
}

impl<const N: usize> Fixed<'_, N> {
    /// Returns the 8 bytes of a field. Generated code asks only for existing fields.
    #[inline]
    pub fn uint(&self, slot: usize) -> u64 {
        let field = self.bytes.get(slot..).and_then(<[u8]>::first_chunk);
        field.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Reads a bool.
    #[inline]
    pub fn bool(&self, slot: usize) -> Result<bool, DecodeError> {
        match self.uint(slot) {
            0 => Ok(false),
            1 => Ok(true),
            number => Err(DecodeError::new(self.at + slot, Problem::NotBool(number))),
        }
    }

    /// Reads the value of an enum, and converts it with `from_number`.
    #[inline]
    pub fn value<T>(
        &self,
        slot: usize,
        from_number: impl Fn(u32) -> Option<T>,
    ) -> Result<T, DecodeError> {
        let known = u32::try_from(self.uint(slot)).ok().and_then(from_number);
        known.ok_or_else(|| DecodeError::new(self.at + slot, Problem::UnknownValue))
    }

    /// Returns whether an optional number is present. This field tells it, and the next field is
    /// the value.
    #[inline]
    pub fn present(&self, slot: usize) -> Result<bool, DecodeError> {
        let present = self.bool(slot)?;
        let value = slot + SLOT_LEN;
        if !present && self.uint(value) != 0 {
            return Err(DecodeError::new(self.at + value, Problem::NotZero));
        }
        Ok(present)
    }
}

/// Splits 8 bytes into two numbers of 4 bytes: a reference into its offset and its length or count.
#[inline]
fn split(reference: u64) -> (u64, u64) {
    (reference & u64::from(u32::MAX), reference >> 32)
}
