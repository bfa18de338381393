//! Binary caches: over HTTP and in a directory.

pub(crate) mod dry_run;
pub(crate) mod file;
pub(crate) mod http;
mod nar_file;
pub(crate) mod narinfo_disk_cache;
pub(crate) mod writer;
