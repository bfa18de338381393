//! The worker protocol, which the Nix daemon and `ssh-ng://` speak, without I/O.
//!
//! [`worker::ClientSession`] is the client: it gets bytes in pieces and returns events.
//! [`worker::ServerSession`] is the other side. The messages themselves are
//! [`worker::Request`], [`worker::Reply`] and [`worker::LogMessage`]; each can be written and
//! parsed.
//!
//! The source of the format is Nix's `worker-protocol.cc`, `worker-protocol-connection.cc` and
//! `daemon.cc`. A parser never panics on its input, and a named constant limits each length.

mod error;
pub mod frames;
pub mod input;
pub mod output;
mod receive_buffer;
mod version;
pub mod worker;

pub use error::WireError;
pub use input::Input;
