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
mod answer;
mod body;
mod cache;
mod clock;
pub mod config;
mod connection;
mod context;
mod dispatch;
mod error;
mod event_loop;
mod handlers;
mod identity;
mod limits;
mod listen;
mod living;
mod log_writer;
mod lookup;
mod nar_reader;
mod nars;
mod output;
mod packs;
mod queue;
pub mod range;
pub mod request;
pub mod route;
mod server;
mod shared;
mod side_cache;
mod text;
mod workers;

pub use config::{Compress, Config, Listen, LogFormat, SideCache};
pub use error::ServeError;
pub use server::{Server, Stop};
