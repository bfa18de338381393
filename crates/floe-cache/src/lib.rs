//! Binary caches as sources and targets of a copy.
//!
//! [`BinaryCache`] and [`BinaryCacheWriter`] know what `nix-cache-info`, narinfos and NARs mean.
//! They work over any storage: a directory ([`FileStorage`]), a server ([`HttpStorage`]),
//! or a wrapper that remembers small objects ([`DiskCachedStorage`]).

#![cfg_attr(
    not(feature = "s3"),
    allow(
        dead_code,
        unused_imports,
        reason = "only caches in buckets use some parts of HTTP"
    )
)]

mod binary_cache;
mod disk_cached_storage;
mod documents;
mod error;
mod file;
mod http;
mod narinfo_disk_cache;
mod network;
mod realisations;
mod request;
#[cfg(feature = "s3")]
mod s3;
mod service_environment;
mod storage;
mod uri_parameter;
mod writer;

pub use binary_cache::{BinaryCache, CacheOptions};
pub use disk_cached_storage::DiskCachedStorage;
pub use documents::{Document, DocumentRequest, Fetched, fetch_documents};
pub use error::CacheError;
pub use file::{FileCacheUri, FileStorage};
pub use http::{ContentEncodings, HttpCacheUri, HttpStorage};
pub use narinfo_disk_cache::NarInfoDiskCache;
pub use network::{
    ClientCertificate, NarInfoDiskCacheOptions, Network, NetworkOptions, Proxies, ProxyVar, options,
};
pub use request::RequestOptions;
#[cfg(feature = "s3")]
pub use s3::{S3CacheUri, S3Options};
pub use service_environment::ServiceEnvironment;
pub use storage::{
    Durability, Folder, Found, GetCallback, GetResult, LenCallback, LenResult, ListPage,
    ListStorage, ListedObject, NewObject, ObjectPlan, QueryLimit, ReadStorage, SmallObject,
    WriteCallback, WriteStorage,
};
pub use writer::{
    ArrivingNar, BinaryCacheWriter, CacheWriteOptions, NarFile, PublishError, SIGNATURES_LEN_MAX,
    VerifiedNarInfo, VerifyContext, read_secret_key,
};
