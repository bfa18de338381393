//! A binary cache in a bucket of S3, or of another service with the same protocol.
//!
//! Objects are read and written by the HTTP storage. S3 is a [`Dialect`](crate::request::Dialect)
//! of it, with a signature for each attempt. The crate object_store makes the signatures, fetches
//! credentials, lists buckets, writes objects in parts and deletes many at once. Its requests go
//! through the same client and the same retries. The modules `connector`, `deletion`, `list` and
//! `multipart` serve any store of that crate.

pub(crate) mod connector;
mod credentials;
pub(crate) mod deletion;
pub(crate) mod list;
mod list_page;
mod message;
pub(crate) mod multipart;
mod options;
mod profile;
mod signer;
mod uri;

pub use options::S3Options;
pub use uri::S3CacheUri;
