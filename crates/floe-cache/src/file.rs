//! A binary cache in a directory.

mod named_objects;
mod storage;
mod uri;

pub use storage::FileStorage;
pub use uri::FileCacheUri;
