//! The local store: an adapter over floe-store.

pub(crate) mod config;
pub(crate) mod dry_run;
pub(crate) mod reuse;
pub(crate) mod source;
pub(crate) mod target;
mod vanished_trees;
