//! A local store for the clients of Nix's protocols, in the place of `nix-store --serve` and of the
//! Nix daemon. Nothing here builds or evaluates.
//!
//! [`HostedStore`] is a store together with the rights of its client ([`Access`]). [`serve()`]
//! speaks the serve protocol of `ssh://`, and [`WorkerClient`] the worker protocol of the daemon.
//! Every path is hashed before it is registered, and a client gets the reply for a path only after
//! the path is valid.

mod access;
mod add_path;
mod arriving_paths;
mod builds;
mod derivations;
mod error;
mod hosted_store;
mod missing;
mod receive;
mod serve;
mod spool;
mod stream;
mod worker;

pub use access::Access;
pub use arriving_paths::ArrivingPaths;
pub use derivations::realise;
pub use error::HostError;
pub use floe_wire::worker::MissingPaths;
pub use hosted_store::{HostedStore, Substituter};
pub use missing::find_missing;
pub use serve::{export, import, serve};
pub use stream::ReadNar;
pub use worker::WorkerClient;
