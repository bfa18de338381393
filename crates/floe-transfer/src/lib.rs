//! The interfaces between the copy pipeline and the two ends of a copy.
//!
//! A [`Source`] answers queries and opens NARs. A [`Target`] stages and commits paths. Between them
//! stands an [`IncomingNar`]: it decodes, hashes and verifies one NAR on a worker. A
//! [`StoreConfig`] describes a store that is not open yet, and opens it in a [`Session`]. The crate
//! names no implementation and opens no connection.

mod backoff;
mod boot_time;
mod build_log;
mod cache_inventory;
mod cancel;
mod closure_limit;
pub mod codec;
mod derived_path;
mod disk_space;
mod error;
mod error_kind;
mod events;
mod incoming_nar;
mod named_objects;
mod nar_stream;
mod nar_verifier;
mod options;
mod path_spec;
mod plain_text;
mod planned_path;
mod receive_times;
mod session;
mod signing;
mod source;
mod space;
mod store_config;
pub mod store_uri;
mod target;
mod unhashed_body;
mod uri_parameters;
pub mod url;

pub use backoff::{OUTAGE_TIMEOUT, RetryPolicy, random_number};
pub use boot_time::time_since_boot;
pub use build_log::open_build_log;
pub use cache_inventory::{
    CacheContents, CacheInventory, CacheNames, CacheObject, CachedPath, UnusableNarInfo,
    file_name_of_url,
};
pub use cancel::{CANCEL_POLL, Cancel};
pub use closure_limit::{CLOSURE_MEMORY_MAX, ClosureBudget, ClosureLimit};
pub use derived_path::{DerivedPath, OutputNames};
pub use disk_space::{Resource, Shortage};
pub use error::{Error, StoreFailure};
pub use error_kind::ErrorKind;
pub use events::{Event, EventSink, Events, ServerWait};
pub use floe_format::Size;
pub use incoming_nar::{IncomingNar, NarContext, NarSink, NeededPaths};
pub use named_objects::{Expected, NamedObject, NamedObjects, Written};
pub use nar_stream::{Body, ChunkSource, NarDump, NarStream, NextChunk, WriteChunk};
pub use nar_verifier::NarVerifier;
pub use options::{CopyOptions, Reuse, ReuseBy, parse_public_keys, trusted_keys};
pub use path_spec::{CLOSURE_MAX, PathSpec};
pub use plain_text::plain_text;
pub use planned_path::PlannedPath;
pub use receive_times::ReceiveTimes;
pub use session::{Service, Session};
pub use signing::{NO_NAR_SIZE, SignatureChange, SigningOutcome};
pub use source::{
    Buffering, CachePolicy, DEFAULT_PRIORITY, FoundFile, HttpServer, NarInfoCallback, NarInfoReply,
    NarInfoResult, NarRequest, QUERIES_MAX, QueriedClosure, Registry, SMALL_LEN_MAX, Source,
    SourceFacts, StoreServer, StoreVerifier, VisitNar, large_prefetch_max,
};
pub use space::{Needs, Space};
pub use store_config::{
    Equals, OpenTarget, SourceContext, StoreConfig, StoreFacts, TargetContext, UriContext,
};
pub use store_uri::StoreUri;
pub use target::{
    CollectedTarget, CommitOutcome, MissingPaths, RealisationTarget, ResumableTarget, RootRegistry,
    SignatureTarget, SigningTarget, Target, TargetFacts,
};
pub use uri_parameters::{IgnoredParameter, UriParameters, nearest_name};
pub use url::redact_credentials;
