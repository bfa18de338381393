//! The engine of floe: moves closures from caches and stores into stores and caches.
//!
//! Its public functions block; what network they need runs on a thread of their own. A move is
//! made by a [`Mover`]: see `mover.rs` for its stages.

mod body;
mod cache;
mod codec;
mod error;
mod location;
mod mover;
mod options;
mod proxies;
mod report;

pub use cache::http::address::without_credentials;
pub use cache::{Order, Source, Sources};
pub use error::{Error, ErrorKind};
pub use location::{FileLocation, HttpLocation, Location, StoreLocation};
pub use mover::{Mover, Outcome, Reuse, ReuseBy, Root, Shortage, Space, Supply, Target};
pub use options::{Cancel, NetworkOptions, Options, RememberedOptions, trusted_keys};
pub use proxies::{Proxies, Variable};
pub use report::{Event, Reporter, Watcher};
