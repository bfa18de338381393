//! The messages of libfloe: requests, replies and events as plain structs, in two encodings.
//!
//! `schema/floe.messages` defines them; `cargo xtask generate` writes the structs. They borrow
//! text and bytes from what was decoded and from what is to be encoded, so that a message is
//! neither copied nor freed on its way.
//!
//! *CBOR* is for all who have a library for it and no header of ours: deterministic (RFC 8949,
//! 4.2.1), a map for each message, described by `floe.cddl`. *Flat* is for C and its kin: the
//! layout of a C struct, little-endian, with texts and lists behind it; see [`flat`].
//!
//! Bytes from elsewhere give errors and never panics, and what decoding takes in time and memory
//! is in proportion to their length.
//!
//! ```
//! use floe_messages::{EchoRequest, Message as _};
//!
//! let request = EchoRequest { message: "hello", delay_ms: 0, event: false };
//! let mut bytes = Vec::new();
//! request.encode_flat(&mut bytes);
//! assert_eq!(EchoRequest::decode_flat(&bytes)?, request);
//! # Ok::<(), floe_messages::DecodeError>(())
//! ```

pub mod cbor;
mod element;
mod error;
pub mod flat;
mod generated;
mod list;
mod message;
mod text;

pub use error::{DecodeError, Problem};
pub use generated::*;
pub use list::{FlatList, Iter, List};
pub use message::{Codec, Encode, Message, PAYLOAD_MAX};
