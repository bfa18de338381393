//! A local store for the clients of Nix's protocols, in the place of `nix-store --serve` and of the
//! Nix daemon. Nothing here builds or evaluates.
//!
//! [`HostedStore`] is a store together with the rights of its client ([`Access`]). [`serve()`]
//! speaks the serve protocol of `ssh://`, and [`serve_worker()`] the worker protocol of the daemon.
//! Every path is hashed before it is registered, and a client gets the reply for a path only after
//! the path is valid.

mod access;
mod error;
mod hosted_store;
mod order;
mod receive;
mod refusals;
mod serve;
mod spool;
mod stream;
mod worker;

pub use access::Access;
pub use error::HostError;
pub use hosted_store::{HostedStore, Substituter};
pub use serve::serve;
pub use worker::{refuse_worker, serve_worker};
