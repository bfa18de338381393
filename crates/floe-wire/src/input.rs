//! Reads the parts of a message from bytes that have arrived.

use std::collections::BTreeSet;

use crate::error::WireError;

/// The bytes of a message, perhaps not all of it.
///
/// Every operation returns [`WireError::Incomplete`] if the bytes end too early. The caller then
/// reads on and parses the message again from its beginning.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    /// Begins at the first byte.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, at: 0 }
    }

    /// Returns the number of bytes that were read.
    pub fn len_read(&self) -> usize {
        self.at
    }

    /// Reads a number: 8 bytes, little-endian.
    pub fn number(&mut self) -> Result<u64, WireError> {
        let bytes = self.take(NUMBER_LEN)?;
        let bytes = bytes.try_into().map_err(|_| self.incomplete(NUMBER_LEN))?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads a number as a truth value. As in Nix, every number but zero is true.
    pub fn boolean(&mut self) -> Result<bool, WireError> {
        Ok(self.number()? != 0)
    }

    /// Reads a string of bytes: its length, the bytes, and zeros up to a multiple of 8.
    pub fn bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], WireError> {
        let len = self.len(what, max)?;
        let padded = len.next_multiple_of(NUMBER_LEN);
        let (bytes, padding) = self.take(padded)?.split_at(len);
        if padding.iter().all(|byte| *byte == 0) {
            Ok(bytes)
        } else {
            Err(WireError::Padding { what })
        }
    }

    /// Reads a string of UTF-8.
    pub fn text(&mut self, what: &'static str, max: usize) -> Result<&'a str, WireError> {
        let bytes = self.bytes(what, max)?;
        std::str::from_utf8(bytes).map_err(|error| WireError::value(what, bytes, error))
    }

    /// Reads a string of bytes for messages. Other bytes than those of UTF-8 are replaced.
    pub fn text_lossy(&mut self, what: &'static str) -> Result<String, WireError> {
        let bytes = self.bytes(what, TEXT_LEN_MAX)?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads a list: its count, and then the entries, which have at least `entry_len_min` bytes
    /// each.
    pub fn list<T>(
        &mut self,
        what: &'static str,
        entry_len_min: usize,
        entry: impl FnMut(&mut Input<'a>) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        self.list_at_most(LIST_LEN_MAX, what, entry_len_min, entry)
    }

    /// Reads a list with at most `max` entries.
    pub(crate) fn list_at_most<T>(
        &mut self,
        max: usize,
        what: &'static str,
        entry_len_min: usize,
        mut entry: impl FnMut(&mut Input<'a>) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.len(what, max)?;
        let mut list = Vec::with_capacity(count.min(self.left() / entry_len_min.max(1)));
        for number in 0..count {
            let rest = (count - number).saturating_mul(entry_len_min);
            // The first entry shows whether the entries may have this length at all. Otherwise the
            // rest would never come.
            if rest > self.left() && number > 0 {
                return Err(self.incomplete(rest));
            }
            list.push(entry(self)?);
        }
        Ok(list)
    }

    /// Reads a list of texts as a set.
    pub fn texts(&mut self, what: &'static str) -> Result<BTreeSet<String>, WireError> {
        let text = |input: &mut Input<'a>| Ok(input.text(what, TEXT_LEN_MAX)?.to_owned());
        Ok(self.list(what, NUMBER_LEN, text)?.into_iter().collect())
    }

    /// Reads a length that must not exceed its limit.
    pub(crate) fn len(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let len = self.number()?;
        match usize::try_from(len) {
            Ok(len) if len <= max => Ok(len),
            _ => Err(WireError::TooLong {
                what,
                len,
                max: max as u64,
            }),
        }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        if len > self.left() {
            return Err(self.incomplete(len));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    fn incomplete(&self, len: usize) -> WireError {
        WireError::Incomplete {
            len: self.bytes.len(),
            needed: self.at.saturating_add(len),
        }
    }
}

/// The length of a number, in bytes.
pub(crate) const NUMBER_LEN: usize = 8;

/// The longest text, in bytes: much more than a line of a log, a signature or an error.
pub(crate) const TEXT_LEN_MAX: usize = 1024 * 1024;

/// The most entries of a list: more than the paths of a large build farm.
const LIST_LEN_MAX: usize = 1_000_000;
