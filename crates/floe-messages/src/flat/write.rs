//! Appends flat messages.

use super::{HEADER_LEN, MAGIC, SLOT_LEN};
use crate::{List, Message, Part};

/// Appends a message: the header and the fixed part, then contents, then lists.
#[inline]
pub(crate) fn encode<'a, M: Message<'a>>(message: &M, out: &mut Vec<u8>) {
    let start = out.len();
    let fixed_end = start + HEADER_LEN + M::FLAT_LEN;
    out.reserve(HEADER_LEN + M::FLAT_LEN + message.content_len());
    out.extend_from_slice(M::FLAT_BLANK);
    let mut end = HEADER_LEN + M::FLAT_LEN;
    message.put_fixed(&mut out[start + HEADER_LEN..fixed_end], &mut end);
    message.append_contents(out);
    message.append_lists(out, start, start + HEADER_LEN);
    let len = out.len() - start;
    debug_assert!(u32::try_from(len).is_ok(), "{} of {len} bytes", M::NAME);
    out[start + MAGIC.len()..start + SLOT_LEN].copy_from_slice(&(len as u32).to_le_bytes());
}

/// The header and the fixed part of a message in which everything is zero, empty or absent.
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

/// Fills in a field.
#[inline]
pub fn put(fixed: &mut [u8], at: usize, value: u64) {
    fixed[at..at + SLOT_LEN].copy_from_slice(&value.to_le_bytes());
}

/// The reference to a text that will be appended at the offset `end`.
#[inline]
pub fn text_at(end: &mut usize, text: &str) -> u64 {
    let offset = *end;
    *end += text.len() + 1;
    reference(offset, text.len())
}

/// The reference to bytes that will be appended at the offset `end`.
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

/// Appends a list and refers to it at the position `at` in `out`, where there are zeros. The
/// message begins at `start`.
pub fn append_list<'a, T: Part<'a>>(
    out: &mut Vec<u8>,
    start: usize,
    at: usize,
    list: &List<'a, T>,
) {
    if list.is_empty() {
        return;
    }
    let first = start + (out.len() - start).next_multiple_of(SLOT_LEN);
    out.resize(first + list.len() * T::FLAT_LEN, 0);
    put(out, at, reference(first - start, list.len()));
    let mut fixed = first;
    list.visit(|element| {
        let mut end = out.len() - start;
        element.put_fixed(&mut out[fixed..fixed + T::FLAT_LEN], &mut end);
        element.append_contents(out);
        element.append_lists(out, start, fixed);
        fixed += T::FLAT_LEN;
    });
}

/// Offset and length or count, as the fixed part has them. Both fit while the whole message does.
#[inline]
fn reference(offset: usize, count: usize) -> u64 {
    offset as u64 | (count as u64) << 32
}
