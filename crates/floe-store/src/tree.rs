//! Trees of files and their NARs.
//!
//! Both directions go relative to directory descriptors and never follow a symbolic link, so
//! that nothing a NAR contains, and nobody who changes a tree meanwhile, can lead outside.

pub(crate) mod dump;
pub(crate) mod links;
pub mod plan;
pub(crate) mod remove;
pub(crate) mod reuse;
pub(crate) mod temporary_tree;
pub(crate) mod unpack;

pub use dump::{CHUNK_LEN, dump_path, list_tree};
pub use remove::remove_tree;
pub use reuse::ReuseMethod;
pub use temporary_tree::TemporaryTree;
pub use unpack::TreeWriter;
