//! Values that the server keeps between requests: narinfos, NARs, plans of NARs, compressed NARs.

pub(crate) mod compressed_nar_cache;
pub(crate) mod nar_cache;
pub(crate) mod narinfo_cache;
mod small_file_packs;
pub(crate) mod tree_identity;
mod weak_cache;
