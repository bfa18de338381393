//! Binary caches: over HTTP and in a directory.

pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod narinfo_disk_cache;
