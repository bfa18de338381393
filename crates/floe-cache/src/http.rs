//! A binary cache behind HTTP or HTTPS.
//!
//! All requests run on one thread with one client, so that requests share connections. Bodies go to
//! the workers over bounded channels: a slow disk slows the network down instead of filling the
//! memory.

mod adaptive_limit;
mod auth;
mod client;
mod connect_timer;
mod dns;
mod download;
mod failure;
mod get;
mod limiter;
mod network;
mod network_body;
mod redirect;
mod reply_guard;
mod reply_wait;
mod request;
mod request_options;
mod request_target;
mod shared;
mod storage;
mod tls;
mod uri;

pub use network::Network;
pub use request_options::RequestOptions;
pub use storage::HttpStorage;
pub use tls::ClientCertificate;
pub use uri::HttpCacheUri;
