//! Strings and sizes of a NAR, which may span several pieces of input.

use crate::nar::padding_len;
use crate::nar::read::state::ParseState;
use crate::nar::read::{NarError, NarReader};

/// A string in the input or in the buffer of the reader.
#[derive(Clone, Copy)]
pub(super) enum StringRef<'input> {
    Input(&'input [u8]),
    Assembled { len: usize },
}

impl<'input> StringRef<'input> {
    #[inline]
    pub(super) fn resolve<'reader>(self, assembled: &'reader [u8]) -> &'reader [u8]
    where
        'input: 'reader,
    {
        match self {
            StringRef::Input(bytes) => bytes,
            StringRef::Assembled { len } => assembled.get(8..8 + len).unwrap_or_default(),
        }
    }
}

impl NarReader {
    /// Reads the size of a file. Returns `None` if the input ends before.
    #[inline]
    pub(super) fn size(&mut self, input: &mut &[u8]) -> Option<u64> {
        let size = match input.split_first_chunk() {
            Some((size, rest)) if self.partial.is_empty() => {
                *input = rest;
                u64::from_le_bytes(*size)
            }
            _ if self.fill_partial(input, 8) => {
                let size = self
                    .partial
                    .first_chunk()
                    .map_or(0, |size| u64::from_le_bytes(*size));
                self.partial.clear();
                size
            }
            _ => return None,
        };
        self.position += 8;
        Some(size)
    }

    /// Reads a string and its padding. Returns `None` if the input ends before.
    #[inline]
    pub(super) fn string<'input>(
        &mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<StringRef<'input>>, NarError> {
        if !self.partial.is_empty() {
            return self.assemble_string(input);
        }
        let Some((len, rest)) = input.split_first_chunk() else {
            return self.assemble_string(input);
        };
        let len = self.check_len(u64::from_le_bytes(*len))?;
        let padding_len = padding_len(len as u64);
        let Some((string, after)) = rest.split_at_checked(len + padding_len) else {
            return self.assemble_string(input);
        };
        let (string, padding) = string.split_at_checked(len).unwrap_or((string, &[]));
        self.check_padding(len, padding)?;
        *input = after;
        self.position += (8 + len + padding_len) as u64;
        Ok(Some(StringRef::Input(string)))
    }

    /// Reads a string that spans several pieces of input, in the same way.
    #[cold]
    fn assemble_string<'input>(
        &mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<StringRef<'input>>, NarError> {
        if !self.fill_partial(input, 8) {
            return Ok(None);
        }
        let len = self
            .partial
            .first_chunk()
            .map_or(0, |len| u64::from_le_bytes(*len));
        let len = self.check_len(len)?;
        let whole = 8 + len + padding_len(len as u64);
        if !self.fill_partial(input, whole) {
            return Ok(None);
        }
        self.check_padding(len, self.partial.get(8 + len..).unwrap_or_default())?;
        std::mem::swap(&mut self.partial, &mut self.assembled);
        self.partial.clear();
        self.position += whole as u64;
        Ok(Some(StringRef::Assembled { len }))
    }

    /// Moves bytes from the input to `partial` until it has `whole` bytes.
    ///
    /// Returns false if the input ends before.
    fn fill_partial(&mut self, input: &mut &[u8], whole: usize) -> bool {
        let missing = whole.saturating_sub(self.partial.len());
        let (taken, rest) = input.split_at_checked(missing).unwrap_or((input, &[]));
        self.partial.extend_from_slice(taken);
        *input = rest;
        self.partial.len() >= whole
    }

    fn check_len(&self, len: u64) -> Result<usize, NarError> {
        let (kind, max) = self.state.string_limit();
        match usize::try_from(len) {
            Ok(len) if len <= max => Ok(len),
            _ if self.state == ParseState::Magic => Err(NarError::Magic),
            _ => Err(NarError::StringTooLong {
                offset: self.position,
                len,
                kind,
                max,
            }),
        }
    }

    fn check_padding(&self, len: usize, padding: &[u8]) -> Result<(), NarError> {
        if padding.iter().all(|&byte| byte == 0) {
            Ok(())
        } else if self.state == ParseState::Magic {
            Err(NarError::Magic)
        } else {
            Err(NarError::Padding {
                offset: self.position + 8 + len as u64,
            })
        }
    }
}
