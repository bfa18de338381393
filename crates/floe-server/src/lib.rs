//! Serves a live Nix store as a binary cache over HTTP.
//!
//! ```text
//! Server::bind   opens the store, reads the index of its paths, listens
//! Server::run    network threads      net::event_loop: parse, route, respond from memory
//!                workers              workers: respond from files, send bodies
//!                one compressor       caches::compressed_nar_cache
//!                one for passwords    login_worker
//! ```
//!
//! A request takes this way:
//!
//! 1. `net::connection` reads bytes, and `http::request` parses the head.
//! 2. `http::route` finds out what is asked for. It is a pure function. If the server needs logins,
//!    `auth` decides whether the client may request this.
//! 3. `dispatch` calls the handler in `handlers`. A response from memory is sent at once. Otherwise
//!    the connection is lent to a worker, together with what was looked up so far.
//! 4. `net::send` sends the body. The framing of a NAR comes from memory, and the contents of large
//!    files go from the page cache to the socket.
//!
//! If a path is missing or is not what was registered, the client gets an error status. If this
//! is noticed after the head is sent, the connection is closed, so that no client takes a part of
//! a NAR for the whole.

pub mod auth;
mod body;
mod caches;
mod clock;
pub mod config;
mod context;
mod deferred;
mod dispatch;
mod error;
mod finish;
mod handlers;
mod html;
pub mod http;
mod landing_page;
mod login_worker;
mod lru;
mod metrics;
mod net;
mod readiness;
pub mod receive;
mod reload;
mod server;
pub mod tls;
mod trusted_proxies;
mod warning;
mod workers;

pub use config::{
    CertificateFiles, Compress, CompressedCacheOptions, Config, Limits, Listen, LogFormat,
    PassedSocket, SocketUse, TlsOptions, address,
};
pub use error::{ServeError, TlsError};
pub use reload::ReloadHandle;
pub use server::{AccessLogHandle, HealthHandle, Server, ShutdownHandle};
pub use trusted_proxies::{NoProxy, TrustedProxies, TrustedProxy};
