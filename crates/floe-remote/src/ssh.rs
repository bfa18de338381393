//! A store on another machine, over SSH: behind its Nix daemon (`ssh-ng://`), or behind
//! `nix-store --serve` (`ssh://`).

mod command;
mod uri;

pub use uri::SshUri;
