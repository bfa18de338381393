//! Flat: a message as C has it in memory, little-endian.
//!
//! A header of 16 bytes (the letters `FLO1`, the whole length, the ID of the message, zero; four
//! bytes each) is followed by the fixed part, and that by the contents. The fixed part has 8 bytes
//! for each field, in the order of the definition:
//!
//! - `uint`: the 8 bytes of the number;
//! - `bool`, an enum: a number of 4 bytes, and 4 that are zero;
//! - `text`, `bytes`: 4 bytes of offset from the start of the header, 4 of length. Text is followed
//!   by a NUL that does not count. Where the offset is 0, there is none: empty, or absent if the
//!   field is optional;
//! - `list`: 4 bytes of offset, 4 of count. The elements stand there one after the other at a
//!   multiple of 8: numbers, references to text or bytes, the fixed parts of messages;
//! - an optional number, bool or enum has 8 bytes before it: 1 if it is there, else 0, and then its
//!   own 8 are zero too;
//! - a message has its own fixed part, inline.
//!
//! Decoding checks everything once and then borrows. References may go anywhere behind the header,
//! but all together they span no more bytes than the message has, so that checking never takes
//! longer than reading it.

mod read;
mod write;

pub use read::{Fixed, Reader};
pub use write::{append_text, blank, bytes_at, put, text_at};
pub(crate) use write::{put_len, reference};

/// The length of the header.
pub const HEADER_LEN: usize = 16;

/// The length of a field in the fixed part.
pub const SLOT_LEN: usize = 8;

/// `FLO1`: the letters, and the version of the layout.
pub const MAGIC: [u8; 4] = *b"FLO1";
