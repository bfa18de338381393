//! The engine of floe: moves closures from caches and stores into stores and caches.
//!
//! Its public functions block; what network they need runs on a thread of their own. A move is
//! made by a [`ClosureCopy`]: see `copy.rs` for its stages.

mod cache;
mod cancel;
mod codec;
mod copy;
mod disk_space;
mod error;
mod events;
mod local;
mod nar_stream;
mod options;
mod path_spec;
mod proxies;
mod registry;
mod retry;
mod source;
mod sources;
mod store_uri;
mod url;

pub use cache::http::auth::unusable_netrc_files;
pub use cancel::Cancel;
pub use copy::{ClosureCopy, CopySummary, Space, Target, reuse_directory};
pub use disk_space::{Resource, Shortage};
pub use error::{Error, ErrorKind};
pub use events::{Event, EventSink, NetworkEvents};
pub use nar_stream::{Body, Chunk, NarDump, NarStream, PrefetchPermit, WriteChunk};
pub use options::{
    CopyOptions, NarInfoDiskCacheOptions, NetworkOptions, Reuse, ReuseBy, parse_public_keys,
    trusted_keys,
};
pub use path_spec::PathSpec;
pub use proxies::{Proxies, ProxyVar};
pub use source::{
    Buffering, CachePolicy, NarInfoCallback, NarInfoReply, NarInfoResult, SMALL_LEN_MAX, Source,
};
pub use sources::{SourceOrder, Sources};
pub use store_uri::{FileCacheUri, HttpCacheUri, LocalStoreUri, StoreUri};
pub use url::redact_credentials;
