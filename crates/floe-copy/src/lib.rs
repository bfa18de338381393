//! Copies closures from sources into a target.
//!
//! [`CopyRequest`] is the way in for front ends. [`resolve_store_uri`] finds the kind of store that
//! a URI names. [`ClosureCopy`] is the pipeline; see `copy.rs` for its stages.

mod added_files;
mod availability;
mod cache_collection;
mod copy;
mod copy_request;
mod export;
mod key_rotation;
mod local;
mod outputs;
mod queries;
mod rebuild;
mod registry;
mod signature_copy;
mod sources;
mod upstreams;
mod verification;

pub use added_files::{AddedFiles, FileToAdd};
pub use availability::{
    AvailabilityQuery, PathAvailability, Remembered, SourceReply, SourceResult,
};
pub use cache_collection::{
    CacheCollection, CollectionEvent, CollectionOptions, CollectionReport, Marked,
};
pub use copy::{ClosureCopy, CopySummary};
pub use copy_request::{CheckedRequest, CopyRequest, OpenCopy, RequestedPaths, reuse_directory};
pub use export::{Export, ExportError, ReadExport};
pub use key_rotation::{KeyRotation, RotatedKey};
pub use local::config::{check_root, check_writable, local_store};
pub use outputs::OutputError;
pub use rebuild::{LeftOut, LeftOutPath, Origin, Rebuild, RebuildOptions, RebuildReport};
pub use registry::{resolve_auto_target, resolve_store_uri};
pub use signature_copy::{CopiedSignatures, SignatureCopy};
pub use sources::{SourceOrder, Sources};
pub use verification::{Verification, Verified};
