//! Deterministic CBOR, as far as messages need it.
//!
//! The writers append to a buffer. The reader takes values from the front and borrows them. Both
//! serve generated code, which knows all keys and compares them as bytes, including their heads.

mod read;
mod write;

pub use read::Reader;
pub use write::{array, bool, bytes, map, text, uint};

/// The major types, as the high bits of a head.
const UINT: u8 = 0 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const MAP: u8 = 5 << 5;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;
const NULL: u8 = 0xf6;
