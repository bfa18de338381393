//! A store behind the Nix daemon of another machine, over SSH.

mod command;
mod uri;

pub use uri::SshUri;
