//! Binary caches as sources and targets of a copy.
//!
//! [`BinaryCache`] and [`BinaryCacheWriter`] know what `nix-cache-info`, narinfos and NARs mean.
//! They work over any storage: a directory ([`FileStorage`]), a server ([`HttpStorage`]),
//! or a wrapper that remembers small objects ([`DiskCachedStorage`]).

mod binary_cache;
mod disk_cached_storage;
mod error;
mod file;
mod http;
mod narinfo_disk_cache;
pub mod options;
mod proxies;
mod storage;
mod writer;

pub use binary_cache::{BinaryCache, CacheOptions};
pub use disk_cached_storage::DiskCachedStorage;
pub use error::CacheError;
pub use file::{FileCacheUri, FileStorage};
pub use http::{ClientCertificate, HttpCacheUri, HttpStorage, Network, RequestOptions};
pub use narinfo_disk_cache::NarInfoDiskCache;
pub use options::{NarInfoDiskCacheOptions, NetworkOptions};
pub use proxies::{Proxies, ProxyVar};
pub use storage::{
    Durability, Found, GetCallback, GetResult, LenCallback, LenResult, ListStorage, NewObject,
    QueryLimit, ReadStorage, SmallObject, WriteStorage,
};
pub use writer::{BinaryCacheWriter, CacheWriteOptions, read_secret_key};
