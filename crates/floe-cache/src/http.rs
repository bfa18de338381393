//! A binary cache behind HTTP or HTTPS.
//!
//! All requests run on one thread with one client, so that requests share connections. Bodies go to
//! the workers over bounded channels: a slow disk slows the network down instead of filling the
//! memory.

mod adaptive_limit;
mod content_encoding;
mod download;
mod get;
mod named_objects;
mod network_body;
mod put;
mod reply_guard;
mod response_fields;
mod shared;
mod storage;
mod upload;
mod uri;
pub(crate) mod write_failure;
mod write_storage;

pub use content_encoding::ContentEncodings;
pub use storage::HttpStorage;
pub use uri::HttpCacheUri;

// For kinds of servers that write and list objects in a way of their own.
pub(crate) use put::{PlainPut, object_headers};
pub(crate) use reply_guard::ReplyGuard;
pub(crate) use shared::HttpCacheShared;
pub(crate) use upload::{DeleteObjects, Deletion, PutObject, Upload};
