//! Writers of flat messages.

use super::{MAGIC, SLOT_LEN};

/// Returns the header and the fixed part of a message in which everything is zero, empty or absent.
pub const fn blank<const N: usize>(id: u32) -> [u8; N] {
    let mut blank = [0; N];
    let id = id.to_le_bytes();
    let mut i = 0;
    while i < MAGIC.len() {
        blank[i] = MAGIC[i];
        blank[SLOT_LEN + i] = id[i];
        i += 1;
    }
    blank
}

/// Writes the length of a message that begins at `start` and ends with `out`.
#[inline]
pub(crate) fn put_len(out: &mut [u8], start: usize) {
    let len = out.len() - start;
    debug_assert!(u32::try_from(len).is_ok(), "the message has {len} bytes");
    out[start + MAGIC.len()..start + SLOT_LEN].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Writes a field.
#[inline]
pub fn put(fixed: &mut [u8], at: usize, value: u64) {
    fixed[at..at + SLOT_LEN].copy_from_slice(&value.to_le_bytes());
}

/// Returns the reference of a text that will be appended at the offset `end`.
#[inline]
pub fn text_at(end: &mut usize, text: &str) -> u64 {
    let offset = *end;
    *end += text.len() + 1;
    reference(offset, text.len())
}

/// Returns the reference of bytes that will be appended at the offset `end`.
#[inline]
pub fn bytes_at(end: &mut usize, bytes: &[u8]) -> u64 {
    let offset = *end;
    *end += bytes.len();
    reference(offset, bytes.len())
}

/// Appends a text with its NUL.
#[inline]
pub fn append_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Combines an offset and a length or count. Both fit as long as the message does.
#[inline]
pub(crate) fn reference(offset: usize, count: usize) -> u64 {
    offset as u64 | (count as u64) << 32
}
