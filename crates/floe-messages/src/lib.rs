//! The messages of libfloe: requests, replies and events as plain structs, in two encodings.
//!
//! `schema/floe.messages` defines them, and `cargo xtask generate` writes the structs. They borrow
//! texts and bytes, so that encoding and decoding neither copy nor free them.
//!
//! *CBOR* is for hosts with a CBOR library: deterministic (RFC 8949, section 4.2.1), one map per
//! message, described by `floe.cddl`. *Flat* is for C and C++: the little-endian layout of a C
//! struct, followed by texts and lists; see [`flat`].
//!
//! Invalid bytes give errors and never panics. Decoding takes time and memory in proportion to
//! their length.
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
