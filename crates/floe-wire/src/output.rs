//! Appends the parts of a message to its bytes.

use crate::input::NUMBER_LEN;

/// Appends a number: 8 bytes, little-endian.
pub fn number(output: &mut Vec<u8>, number: u64) {
    output.extend_from_slice(&number.to_le_bytes());
}

/// Appends a truth value as a number.
pub fn boolean(output: &mut Vec<u8>, value: bool) {
    number(output, value.into());
}

/// Appends a string: its length, its bytes, and zeros up to a multiple of 8.
pub fn text(output: &mut Vec<u8>, text: impl AsRef<[u8]>) {
    let bytes = text.as_ref();
    number(output, bytes.len() as u64);
    output.extend_from_slice(bytes);
    let padding = bytes.len().next_multiple_of(NUMBER_LEN) - bytes.len();
    output.extend_from_slice(&[0; NUMBER_LEN][..padding]);
}

/// Appends a list of strings with its count.
pub fn texts<T: AsRef<[u8]>>(output: &mut Vec<u8>, texts: impl ExactSizeIterator<Item = T>) {
    number(output, texts.len() as u64);
    for entry in texts {
        text(output, entry);
    }
}
