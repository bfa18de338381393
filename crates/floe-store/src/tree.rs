//! Trees of files and their NARs.
//!
//! Both directions go relative to directory descriptors and never follow a symbolic link, so
//! that nothing a NAR contains, and nobody who changes a tree meanwhile, can lead outside.

pub(crate) mod links;
pub mod plan;
pub mod read;
pub(crate) mod remove;
pub mod reuse;
pub(crate) mod temporary;
pub mod write;
