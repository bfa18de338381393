//! Appends CBOR.

use super::float::{Shortest, shortest};
use super::{ARRAY, BYTES, FALSE, FLOAT_16, FLOAT_32, FLOAT_64, MAP, NEGATIVE, TEXT, TRUE, UINT};

/// Appends a number.
#[inline]
pub fn uint(out: &mut Vec<u8>, value: u64) {
    head(out, UINT, value);
}

/// Appends a number that may be negative.
#[inline]
pub fn int(out: &mut Vec<u8>, value: i64) {
    // CBOR has -1 - n for negative numbers, which is what the complement is.
    let (major, number) = match value {
        0.. => (UINT, value),
        _ => (NEGATIVE, !value),
    };
    head(out, major, number.cast_unsigned());
}

/// Appends a float, in the fewest bytes that hold it.
#[inline]
pub fn float(out: &mut Vec<u8>, value: f64) {
    match shortest(value) {
        Shortest::Half(bits) => {
            let [a, b] = bits.to_be_bytes();
            out.extend_from_slice(&[FLOAT_16, a, b]);
        }
        Shortest::Single(bits) => numbered(out, FLOAT_32, bits.to_be_bytes()),
        Shortest::Double(bits) => numbered(out, FLOAT_64, bits.to_be_bytes()),
    }
}

/// Appends true or false.
#[inline]
pub fn bool(out: &mut Vec<u8>, value: bool) {
    out.push(if value { TRUE } else { FALSE });
}

/// Appends text.
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

/// Begins a map of so many fields.
#[inline]
pub fn map(out: &mut Vec<u8>, count: u64) {
    head(out, MAP, count);
}

/// Begins a list of so many elements.
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

/// Rare in small messages, and so out of line.
#[inline(never)]
fn long_head(out: &mut Vec<u8>, major: u8, number: u64) {
    if let Ok(number) = u16::try_from(number) {
        let [a, b] = number.to_be_bytes();
        out.extend_from_slice(&[major | 25, a, b]);
    } else if let Ok(number) = u32::try_from(number) {
        numbered(out, major | 26, number.to_be_bytes());
    } else {
        numbered(out, major | 27, number.to_be_bytes());
    }
}

#[inline]
fn numbered<const N: usize>(out: &mut Vec<u8>, first: u8, number: [u8; N]) {
    out.push(first);
    out.extend_from_slice(&number);
}
