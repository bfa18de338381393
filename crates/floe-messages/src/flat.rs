//! The flat encoding: the little-endian layout of a C struct.
//!
//! A header of 16 bytes comes first: the letters `FLO1`, the length of the message, the ID of the
//! message, and zero, with four bytes each. The fixed part follows, and then the contents. The
//! fixed part has 8 bytes for each field, in the order of the schema:
//!
//! - `uint`: the 8 bytes of the number.
//! - `bool` and enums: a number of 4 bytes, and 4 zero bytes.
//! - `text` and `bytes`: 4 bytes of offset from the start of the header, and 4 of length. A NUL
//!   follows a text; the length does not count it. Offset 0 means empty, or absent if the field is
//!   optional.
//! - `list`: 4 bytes of offset, and 4 of count. The elements follow each other at a multiple of 8:
//!   numbers, references to texts or bytes, or the fixed parts of messages.
//! - An optional number, bool or enum has 8 bytes before it: 1 if it is present, otherwise 0. If it
//!   is absent, its own 8 bytes are zero too.
//! - A message: its fixed part, inline.
//!
//! Decoding checks everything once and then borrows. References may point anywhere behind the
//! header, but in total they span at most as many bytes as the message has. Checking a message
//! therefore never takes longer than reading it.

mod read;
mod write;

pub use read::{Fixed, Reader};
pub use write::{append_text, blank, bytes_at, put, text_at};
pub(crate) use write::{put_len, reference};

/// The length of the header.
pub const HEADER_LEN: usize = 16;

/// The length of a field in the fixed part.
pub const SLOT_LEN: usize = 8;

/// `FLO1`: a name and the version of the layout.
pub const MAGIC: [u8; 4] = *b"FLO1";
