//! What all messages can do.

use crate::{DecodeError, cbor, flat};

/// The largest payload that libfloe takes or gives, in bytes: 64 MiB, room for the closure of a
/// whole system with its references.
///
/// The codecs themselves do not look at it: whoever takes a payload compares first. Below it, none
/// of the 32-bit offsets of flat can overflow.
pub const PAYLOAD_MAX: usize = 64 << 20;

/// A request, a reply, an event, or a part of one that has a name.
pub trait Message<'a>: Encode<'a> {
    /// As in the definition.
    const NAME: &'static str;
    /// FNV-1a of the definition: differs when a message's fields differ.
    const ID: u32;
    /// A flat message without contents: the header and zeros.
    #[doc(hidden)]
    const FLAT_BLANK: &'static [u8];

    /// Appends the message as deterministic CBOR.
    #[inline]
    fn encode_cbor(&self, out: &mut Vec<u8>) {
        self.write_cbor(out);
    }

    /// Reads a message that is all there is in `bytes`.
    #[inline]
    fn decode_cbor(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = cbor::Reader::new(bytes);
        let decoded = Self::read_cbor(&mut reader);
        match decoded.and_then(|message| reader.end().map(|()| message)) {
            Ok(message) => Ok(message),
            Err(error) => Err(error.within(Self::NAME, "")),
        }
    }

    /// Appends the message in flat. Offsets count from where it begins; whoever hands it to C
    /// begins at a multiple of 8, most simply in an empty buffer.
    #[inline]
    fn encode_flat(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let fixed_end = start + flat::HEADER_LEN + Self::FLAT_LEN;
        out.reserve(flat::HEADER_LEN + Self::FLAT_LEN + self.content_len());
        out.extend_from_slice(Self::FLAT_BLANK);
        let mut end = flat::HEADER_LEN + Self::FLAT_LEN;
        self.put_fixed(&mut out[start + flat::HEADER_LEN..fixed_end], &mut end);
        self.append_contents(out);
        self.append_lists(out, start, start + flat::HEADER_LEN);
        flat::put_len(out, start);
    }

    /// Checks a message that is all there is in `bytes`, and borrows from it.
    #[inline]
    fn decode_flat(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let opened = flat::Reader::open(bytes, Self::ID);
        match opened.and_then(|mut reader| Self::read_flat(&mut reader, flat::HEADER_LEN)) {
            Ok(message) => Ok(message),
            Err(error) => Err(error.within(Self::NAME, "")),
        }
    }
}

/// What messages and the other elements of lists have in common. The code behind it is generated,
/// and nobody else has a reason to call it.
pub trait Encode<'a>: Sized + Clone + Default {
    /// The fewest bytes that one takes in CBOR, so that a count can be compared with what is left.
    const CBOR_MIN: usize;
    /// The length of the fixed part in flat.
    const FLAT_LEN: usize;

    /// Appends it as CBOR.
    fn write_cbor(&self, out: &mut Vec<u8>);

    /// Takes it from the front.
    fn read_cbor(reader: &mut cbor::Reader<'a>) -> Result<Self, DecodeError>;

    /// How many bytes of text and bytes it has, as a hint for room.
    #[inline]
    fn content_len(&self) -> usize {
        0
    }

    /// Fills in the fixed part. Texts will begin at the offset `end`, which is moved on.
    #[inline]
    fn put_fixed(&self, fixed: &mut [u8], end: &mut usize) {
        let _ = (fixed, end);
    }

    /// Appends its texts and bytes, in the order of `put_fixed`.
    #[inline]
    fn append_contents(&self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends its lists. The message begins at `start` in `out`, this part of it at `fixed`.
    #[inline]
    fn append_lists(&self, out: &mut Vec<u8>, start: usize, fixed: usize) {
        let _ = (out, start, fixed);
    }

    /// Checks it and all that it refers to; its fixed part begins at `at`.
    fn read_flat(reader: &mut flat::Reader<'a>, at: usize) -> Result<Self, DecodeError>;
}

/// How a message is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Codec {
    /// Deterministic CBOR.
    Cbor = 1,
    /// The layout of a C struct.
    Flat = 2,
}

impl Codec {
    /// The codec of that number.
    pub const fn from_number(number: u32) -> Option<Codec> {
        match number {
            1 => Some(Codec::Cbor),
            2 => Some(Codec::Flat),
            _ => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Appends the message.
    #[inline]
    pub fn encode<'a, M: Message<'a>>(self, message: &M, out: &mut Vec<u8>) {
        match self {
            Codec::Cbor => message.encode_cbor(out),
            Codec::Flat => message.encode_flat(out),
        }
    }

    /// Reads a message that is all there is in `bytes`.
    #[inline]
    pub fn decode<'a, M: Message<'a>>(self, bytes: &'a [u8]) -> Result<M, DecodeError> {
        match self {
            Codec::Cbor => M::decode_cbor(bytes),
            Codec::Flat => M::decode_flat(bytes),
        }
    }
}
