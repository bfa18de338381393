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
pub mod address;
mod body;
mod clock;
mod compressed_nar_cache;
pub mod config;
mod connection;
mod context;
mod dispatch;
mod error;
mod event_loop;
mod handlers;
mod limits;
mod listen;
mod log_writer;
mod lru;
mod nar_cache;
mod nar_reader;
mod narinfo_cache;
mod queue;
pub mod range;
pub mod request;
mod response;
pub mod route;
mod server;
mod shared;
mod small_file_packs;
mod text;
mod tree_identity;
mod weak_cache;
mod workers;
mod write_buffer;

pub use config::{Compress, CompressedCacheOptions, Config, Listen, LogFormat};
pub use error::ServeError;
pub use server::{Server, ShutdownHandle};
