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
mod incoming_nar;
mod local;
mod nar_stream;
mod nar_verifier;
mod options;
mod path_spec;
mod planned_path;
mod proxies;
mod registry;
mod retry;
mod source;
mod sources;
mod space;
mod store_uri;
mod target;
mod url;

pub use cache::http::auth::unusable_netrc_files;
pub use cancel::Cancel;
pub use copy::{ClosureCopy, CopySummary};
pub use disk_space::{Resource, Shortage};
pub use error::{Error, ErrorKind};
pub use events::{Event, EventSink, NetworkEvents};
pub use incoming_nar::{IncomingNar, NarSink};
pub use local::reuse::reuse_directory;
pub use nar_stream::{Body, Chunk, NarDump, NarStream, PrefetchPermit, WriteChunk};
pub use options::{
    CopyOptions, NarInfoDiskCacheOptions, NetworkOptions, Reuse, ReuseBy, parse_public_keys,
    trusted_keys,
};
pub use path_spec::PathSpec;
pub use planned_path::PlannedPath;
pub use proxies::{Proxies, ProxyVar};
pub use registry::{open_read_only_target, open_target};
pub use source::{
    Buffering, CachePolicy, NarInfoCallback, NarInfoReply, NarInfoResult, SMALL_LEN_MAX, Source,
};
pub use sources::{SourceOrder, Sources};
pub use space::Space;
pub use store_uri::{FileCacheUri, HttpCacheUri, LocalStoreUri, StoreUri};
pub use target::{CommitOutcome, Target};
pub use url::redact_credentials;
