//! Stores behind another process of Nix, as sources and targets of a copy: behind a daemon here
//! (`daemon`, `unix://`) or over SSH (`ssh-ng://`), and behind `nix-store --serve` (`ssh://`).
//!
//! A connection (`connection.rs`) sends requests without waiting for the replies of earlier ones;
//! one thread reads the replies. `floe-wire` knows the messages of both protocols.

mod connection;
mod daemon;
mod error;
mod program_log;
mod remote_log;
mod source;
mod ssh;
mod stream;
mod writer;

pub use daemon::{DAEMON_SOCKET, DaemonUri};
pub use error::RemoteError;
pub use ssh::SshUri;
