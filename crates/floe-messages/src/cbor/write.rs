//! Writers of deterministic CBOR.

use super::{ARRAY, BYTES, FALSE, MAP, TEXT, TRUE, UINT};

/// Appends a number.
#[inline]
pub fn uint(out: &mut Vec<u8>, value: u64) {
    head(out, UINT, value);
}

/// Appends a bool.
#[inline]
pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { TRUE } else { FALSE });
}

/// Appends a text.
#[inline]
pub fn text(out: &mut Vec<u8>, value: &str) {
    head(out, TEXT, value.len() as u64);
    out.extend_from_slice(value.as_bytes());
}

/// Appends bytes.
#[inline]
pub fn bytes(out: &mut Vec<u8>, value: &[u8]) {
    head(out, BYTES, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends the head of a map with `count` fields.
#[inline]
pub fn map(out: &mut Vec<u8>, count: u64) {
    head(out, MAP, count);
}

/// Appends the head of a list with `count` elements.
#[inline]
pub fn array(out: &mut Vec<u8>, count: u64) {
    head(out, ARRAY, count);
}

#[inline]
fn head(out: &mut Vec<u8>, major: u8, number: u64) {
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, number as u8]),
        _ => long_head(out, major, number),
    }
}

/// Out of line, because it is rare in small messages.
#[inline(never)]
fn long_head(out: &mut Vec<u8>, major: u8, number: u64) {
    let (kind, len) = match number {
        0..0x1_0000 => (25, 2),
        0x1_0000..0x1_0000_0000 => (26, 4),
        _ => (27, 8),
    };
    out.push(major | kind);
    let bytes = number.to_be_bytes();
    out.extend_from_slice(&bytes[bytes.len() - len..]);
}
