//! The traits of messages, and the choice of a codec.

use crate::{DecodeError, cbor, flat};

/// The maximum length of a payload in bytes. 64 MiB are enough for the closure of a whole system
/// with its references.
///
/// The codecs do not check it; the caller does. Below it, the 32-bit offsets of a flat message
/// cannot overflow.
pub const PAYLOAD_MAX: usize = 64 << 20;

/// A request, a reply, an event, or a named part of one.
pub trait Message<'a>: Encode<'a> {
    /// The name in the schema.
    const NAME: &'static str;
    /// FNV-1a hash of the fields. It changes if the fields change.
    const ID: u32;
    /// An empty flat message: the header and zeros.
    #[doc(hidden)]
    const FLAT_BLANK: &'static [u8];

    /// Appends the message as deterministic CBOR.
    #[inline]
    fn encode_cbor(&self, out: &mut Vec<u8>) {
        self.write_cbor(out);
    }

    /// Decodes a message. `bytes` must contain nothing else.
    #[inline]
    fn decode_cbor(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = cbor::Reader::new(bytes);
        let decoded = Self::read_cbor(&mut reader);
        decoded
            .and_then(|message| reader.end().map(|()| message))
            .map_err(|error| error.within(Self::NAME, ""))
    }

    /// Appends the message in the flat layout. Offsets count from its start. For C, the message
    /// must start at a multiple of 8, for example in an empty buffer.
    #[inline]
    fn encode_flat(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let fixed = start + flat::HEADER_LEN;
        let mut end = flat::HEADER_LEN + Self::FLAT_LEN;
        out.reserve(end + self.content_len());
        out.extend_from_slice(Self::FLAT_BLANK);
        self.put_fixed(&mut out[fixed..fixed + Self::FLAT_LEN], &mut end);
        self.append_contents(out);
        self.append_lists(out, start, fixed);
        flat::put_len(out, start);
    }

    /// Checks a flat message and borrows from it. `bytes` must contain nothing else.
    #[inline]
    fn decode_flat(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        flat::Reader::open(bytes, Self::ID)
            .and_then(|mut reader| Self::read_flat(&mut reader, flat::HEADER_LEN))
            .map_err(|error| error.within(Self::NAME, ""))
    }
}

/// The common interface of messages and other list elements. Generated code implements and calls
/// it. The defaults are those of elements that are not messages.
pub trait Encode<'a>: Sized + Clone + Default {
    /// The minimum length in CBOR. Used to reject counts that exceed the remaining bytes.
    const CBOR_MIN: usize = 1;
    /// The length of the fixed part in the flat layout.
    const FLAT_LEN: usize = flat::SLOT_LEN;

    /// Appends the value as CBOR.
    fn write_cbor(&self, out: &mut Vec<u8>);

    /// Reads the value.
    fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError>;

    /// Returns the number of bytes in texts and byte strings, as a capacity hint.
    #[inline]
    fn content_len(&self) -> usize {
        0
    }

    /// Writes the fixed part. Texts will begin at the offset `end`, which advances.
    #[inline]
    fn put_fixed(&self, _fixed: &mut [u8], _end: &mut usize) {}

    /// Appends the texts and byte strings, in the order of `put_fixed`.
    #[inline]
    fn append_contents(&self, _out: &mut Vec<u8>) {}

    /// Appends the lists. The message begins at `start` in `out`, and this part of it at `fixed`.
    #[inline]
    fn append_lists(&self, _out: &mut Vec<u8>, _start: usize, _fixed: usize) {}

    /// Checks the value whose fixed part begins at `at`, with everything that it refers to.
    fn read_flat(reader: &mut flat::Reader<'a>, at: usize) -> Result<Self, DecodeError>;
}

/// The encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Codec {
    /// Deterministic CBOR.
    Cbor = 1,
    /// The layout of a C struct.
    Flat = 2,
}

impl Codec {
    /// Returns the codec with this number.
    pub const fn from_number(number: u32) -> Option<Codec> {
        match number {
            1 => Some(Codec::Cbor),
            2 => Some(Codec::Flat),
            _ => None,
        }
    }

    /// Appends the message.
    #[inline]
    pub fn encode<'a, M: Message<'a>>(self, message: &M, out: &mut Vec<u8>) {
        match self {
            Codec::Cbor => message.encode_cbor(out),
            Codec::Flat => message.encode_flat(out),
        }
    }

    /// Decodes a message. `bytes` must contain nothing else.
    #[inline]
    pub fn decode<'a, M: Message<'a>>(self, bytes: &'a [u8]) -> Result<M, DecodeError> {
        match self {
            Codec::Cbor => M::decode_cbor(bytes),
            Codec::Flat => M::decode_flat(bytes),
        }
    }
}
