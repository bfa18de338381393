//! The store behind the Nix daemon of this machine.

mod uri;

pub use uri::{DAEMON_SOCKET, DaemonUri};
