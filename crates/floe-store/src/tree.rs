//! Trees of files and their NARs.
//!
//! Reading and writing both use paths relative to directory descriptors and never follow a symbolic
//! link. Neither the contents of a NAR nor another process that changes the tree can therefore lead
//! outside the tree.

mod canonicalise;
pub(crate) mod dump;
pub(crate) mod links;
mod optimise;
pub mod plan;
mod probe;
pub(crate) mod remove;
mod replace;
mod restore;
pub(crate) mod reuse;
mod sync;
pub(crate) mod temporary_tree;
pub(crate) mod unpack;

pub(crate) use canonicalise::canonicalise;
pub(crate) use dump::hash_tree;
pub use dump::{CHUNK_LEN, dump_path, list_tree};
pub(crate) use optimise::{LinkedTree, TreeOptimiser};
pub use probe::{Abilities, Ability, probe_file_system};
pub use remove::remove_tree;
pub(crate) use remove::{remove_and_count, tree_bytes};
pub(crate) use replace::replace_tree;
pub use restore::restore_path;
pub use reuse::ReuseMethod;
pub(crate) use sync::{has_many_files, sync_tree};
pub use temporary_tree::TemporaryTree;
pub use unpack::TreeWriter;
