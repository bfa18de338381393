//! The protocols of Nix between a client and the store of another process or machine, without I/O:
//! the worker protocol of the daemon and of `ssh-ng://`, and the serve protocol of `ssh://`.
//!
//! [`ClientSession`] is the client of both: it gets bytes in pieces and returns events.
//! [`worker::ServerSession`] is the daemon. The messages themselves are [`worker::Request`],
//! [`worker::Reply`] and [`worker::LogMessage`]; each can be written and parsed.
//!
//! The source of the format is Nix's `worker-protocol.cc`, `worker-protocol-connection.cc` and
//! `daemon.cc`. A parser never panics on its input, and a named constant limits each length.

mod client;
mod compression;
mod error;
pub mod frames;
pub mod input;
pub mod output;
mod protocol;
mod receive_buffer;
pub mod serve;
mod version;
pub mod worker;

pub use client::{ClientEvent, ClientSession};
pub use compression::{Compressor, compressor};
pub use error::WireError;
pub use input::Input;
pub use protocol::Protocol;
