//! A binary cache in a directory.

mod storage;
mod uri;

pub use storage::FileStorage;
pub use uri::FileCacheUri;
