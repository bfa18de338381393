//! Binary caches as sources and targets of a copy: over HTTP and in a directory.

mod dry_run;
mod file;
mod http;
mod narinfo_disk_cache;
mod options;
mod proxies;
mod writer;

pub use dry_run::ReadOnlyCache;
pub use file::FileCache;
pub use http::auth::unusable_netrc_files;
pub use http::{HttpCache, Network};
pub use narinfo_disk_cache::NarInfoDiskCache;
pub use options::{NarInfoDiskCacheOptions, NetworkOptions};
pub use proxies::{Proxies, ProxyVar};
pub use writer::BinaryCacheWriter;
