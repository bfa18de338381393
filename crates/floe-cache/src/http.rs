//! A binary cache behind HTTP or HTTPS.
//!
//! All requests run on one thread with one client, so that requests share connections. Bodies go to
//! the workers over bounded channels: a slow disk slows the network down instead of filling the
//! memory.

mod adaptive_limit;
mod auth;
mod cache_client;
mod content_encoding;
mod dialect;
mod download;
mod exchange;
mod failure;
mod get;
mod network_body;
mod put;
mod redirect;
mod reply_guard;
mod reply_wait;
mod request;
mod request_body;
mod request_options;
mod request_target;
mod response;
mod shared;
mod storage;
mod upload;
mod uri;
pub(crate) mod write_failure;
mod write_storage;

pub use content_encoding::ContentEncodings;
pub use request_options::RequestOptions;
pub use storage::HttpStorage;
pub use uri::HttpCacheUri;

// For `s3`, which sends its requests in the same way.
pub(crate) use cache_client::CacheClient;
pub(crate) use dialect::{Dialect, Explanation, Signing};
pub(crate) use exchange::exchange;
pub(crate) use put::{PlainPut, object_headers};
pub(crate) use reply_guard::ReplyGuard;
pub(crate) use request::Message;
pub(crate) use request_body::{Part, RequestBody};
pub(crate) use shared::HttpCacheShared;
pub(crate) use upload::{PutObject, Upload};
