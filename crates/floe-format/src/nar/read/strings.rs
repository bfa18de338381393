//! The strings and sizes of a NAR, taken from the input or put together from several pushes.

use crate::nar::padding_len;
use crate::nar::read::words::State;
use crate::nar::read::{NarError, Reader};

/// A string, whole in the input or put together by the reader.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'input> {
    Input(&'input [u8]),
    Carried { len: usize },
}

impl<'input> Bytes<'input> {
    #[inline]
    pub(super) fn resolve<'reader>(self, carried: &'reader [u8]) -> &'reader [u8]
    where
        'input: 'reader,
    {
        match self {
            Bytes::Input(bytes) => bytes,
            Bytes::Carried { len } => carried.get(8..8 + len).unwrap_or_default(),
        }
    }
}

impl Reader {
    /// Reads the size of a file.
    #[inline]
    pub(super) fn size(&mut self, input: &mut &[u8]) -> Option<u64> {
        let size = match input.split_first_chunk() {
            Some((size, rest)) if self.carry.is_empty() => {
                *input = rest;
                u64::from_le_bytes(*size)
            }
            _ if self.fill_carry(input, 8) => {
                let size = self
                    .carry
                    .first_chunk()
                    .map_or(0, |size| u64::from_le_bytes(*size));
                self.carry.clear();
                size
            }
            _ => return None,
        };
        self.position += 8;
        Some(size)
    }

    /// Reads the next string, as soon as all of it and its padding are there.
    #[inline]
    pub(super) fn string<'input>(
        &mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<Bytes<'input>>, NarError> {
        if !self.carry.is_empty() {
            return self.carry_string(input);
        }
        let Some((len, rest)) = input.split_first_chunk() else {
            return self.carry_string(input);
        };
        let len = self.check_len(u64::from_le_bytes(*len))?;
        let padding_len = padding_len(len as u64);
        let Some((string, after)) = rest.split_at_checked(len + padding_len) else {
            return self.carry_string(input);
        };
        let (string, padding) = string.split_at_checked(len).unwrap_or((string, &[]));
        self.check_padding(len, padding)?;
        *input = after;
        self.position += (8 + len + padding_len) as u64;
        Ok(Some(Bytes::Input(string)))
    }

    /// Like [`Reader::string`], for one that straddles pushes.
    #[cold]
    fn carry_string<'input>(
        &mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<Bytes<'input>>, NarError> {
        if !self.fill_carry(input, 8) {
            return Ok(None);
        }
        let len = self
            .carry
            .first_chunk()
            .map_or(0, |len| u64::from_le_bytes(*len));
        let len = self.check_len(len)?;
        let whole = 8 + len + padding_len(len as u64);
        if !self.fill_carry(input, whole) {
            return Ok(None);
        }
        self.check_padding(len, self.carry.get(8 + len..).unwrap_or_default())?;
        std::mem::swap(&mut self.carry, &mut self.carried);
        self.carry.clear();
        self.position += whole as u64;
        Ok(Some(Bytes::Carried { len }))
    }

    /// Takes from the input until the carry holds so many bytes; false if it runs out before.
    fn fill_carry(&mut self, input: &mut &[u8], whole: usize) -> bool {
        let missing = whole.saturating_sub(self.carry.len());
        let (taken, rest) = input.split_at_checked(missing).unwrap_or((input, &[]));
        self.carry.extend_from_slice(taken);
        *input = rest;
        self.carry.len() >= whole
    }

    fn check_len(&self, len: u64) -> Result<usize, NarError> {
        let (limit, max) = self.state.string_limit();
        match usize::try_from(len) {
            Ok(len) if len <= max => Ok(len),
            _ if self.state == State::Magic => Err(NarError::Magic),
            _ => Err(NarError::StringTooLong {
                offset: self.position,
                len,
                limit,
                max,
            }),
        }
    }

    fn check_padding(&self, len: usize, padding: &[u8]) -> Result<(), NarError> {
        if padding.iter().all(|&byte| byte == 0) {
            Ok(())
        } else if self.state == State::Magic {
            Err(NarError::Magic)
        } else {
            Err(NarError::Padding {
                offset: self.position + 8 + len as u64,
            })
        }
    }
}
