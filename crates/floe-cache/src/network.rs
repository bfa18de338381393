//! The network of a session: clients, TLS, name lookups, proxies, and the limits that all requests
//! share. It knows no cache and no kind of server.

pub(crate) mod client;
mod connect_timer;
mod dns;
pub(crate) mod limiter;
pub mod options;
mod proxies;
pub(crate) mod tls;
pub(crate) mod upload_limits;

pub use options::{AwsOptions, NarInfoDiskCacheOptions, NetworkOptions};
pub use proxies::{Proxies, ProxyVar};
pub use tls::ClientCertificate;
