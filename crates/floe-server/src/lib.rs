//! Serves a live Nix store as a binary cache over HTTP.
//!
//! ```text
//! Server::bind   opens the store, reads the index of its paths, listens
//! Server::run    network threads: read → route → lookup → answer from memory → write
//!                workers:         answer from files → sendfile
//!                side cache:      compress in the background
//! ```
//!
//! 1. a request is routed by a pure function;
//! 2. the path is looked up: absent by an index of hash parts, present by rendered and signed
//!    narinfos that are compared with the database when that has changed;
//! 3. what is in memory is answered by the network's thread; what needs files goes to a worker,
//!    together with the connection;
//! 4. a NAR is sent by its plan: framing from memory, contents from the disk's cache to the
//!    socket.
//!
//! A path that is missing or not what was registered is refused before the answer begins. What
//! goes wrong later breaks the connection off, so that no client takes a part for the whole.

mod access_log;
mod body;
mod caches;
mod clock;
pub mod config;
mod context;
mod dispatch;
mod error;
mod handlers;
pub mod http;
mod net;
mod server;
mod workers;

pub use config::{Compress, CompressedCacheOptions, Config, Listen, LogFormat};
pub use error::ServeError;
pub use net::address;
pub use server::{Server, ShutdownHandle};
