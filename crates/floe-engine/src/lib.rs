//! The engine of floe: moves closures from caches and stores into stores and caches.
//!
//! Its public functions block; what network they need runs on a thread of their own. A move is
//! made by a [`Mover`]: see `mover.rs` for its stages.

mod body;
mod cache;
mod cancel;
mod codec;
mod disk_space;
mod error;
mod location;
mod mover;
mod options;
mod path_spec;
mod proxies;
mod report;
mod url;

pub use cache::http::logins::unusable_logins;
pub use cache::{Order, Source, Sources};
pub use cancel::Cancel;
pub use disk_space::{Shortage, Supply};
pub use error::{Error, ErrorKind};
pub use location::{FileLocation, HttpLocation, Location, StoreLocation};
pub use mover::{Mover, Outcome, Space, Target, reuse_directory};
pub use options::{
    NetworkOptions, Options, RememberedOptions, Reuse, ReuseBy, parse_public_keys, trusted_keys,
};
pub use path_spec::Root;
pub use proxies::{Proxies, Variable};
pub use report::{Event, Reporter, Watcher};
pub use url::without_credentials;
