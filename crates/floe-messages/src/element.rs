//! The elements of lists besides messages.

use crate::cbor;
use crate::flat::{self, SLOT_LEN};
use crate::{DecodeError, Encode};

impl<'a> Encode<'a> for u64 {
    #[inline]
    fn write_cbor(&self, out: &mut Vec<u8>) {
        cbor::uint(out, *self);
    }

    #[inline]
    fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError> {
        reader.uint()
    }

    #[inline]
    fn put_fixed(&self, fixed: &mut [u8], _end: &mut usize) {
        flat::put(fixed, 0, *self);
    }

    #[inline]
    fn read_flat(reader: &mut flat::Reader<'a>, at: usize) -> Result<Self, DecodeError> {
        Ok(reader.fixed::<SLOT_LEN>(at)?.uint(0))
    }
}

impl<'a> Encode<'a> for &'a str {
    #[inline]
    fn write_cbor(&self, out: &mut Vec<u8>) {
        cbor::text(out, self);
    }

    #[inline]
    fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError> {
        reader.text()
    }

    #[inline]
    fn put_fixed(&self, fixed: &mut [u8], end: &mut usize) {
        flat::put(fixed, 0, flat::text_at(end, self));
    }

    #[inline]
    fn append_contents(&self, out: &mut Vec<u8>) {
        flat::append_text(out, self);
    }

    #[inline]
    fn read_flat(reader: &mut flat::Reader<'a>, at: usize) -> Result<Self, DecodeError> {
        let fixed = reader.fixed::<SLOT_LEN>(at)?;
        reader.text(&fixed, 0)
    }
}

impl<'a> Encode<'a> for &'a [u8] {
    #[inline]
    fn write_cbor(&self, out: &mut Vec<u8>) {
        cbor::bytes(out, self);
    }

    #[inline]
    fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError> {
        reader.bytes()
    }

    #[inline]
    fn put_fixed(&self, fixed: &mut [u8], end: &mut usize) {
        flat::put(fixed, 0, flat::bytes_at(end, self));
    }

    #[inline]
    fn append_contents(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    #[inline]
    fn read_flat(reader: &mut flat::Reader<'a>, at: usize) -> Result<Self, DecodeError> {
        let fixed = reader.fixed::<SLOT_LEN>(at)?;
        reader.bytes(&fixed, 0)
    }
}
