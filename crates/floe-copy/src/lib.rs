//! Copies closures from sources into a target. See `copy.rs` for the stages.

mod copy;
mod local;
mod registry;
mod sources;

pub use copy::{ClosureCopy, CopySummary};
pub use local::reuse::reuse_directory;
pub use registry::{open_read_only_target, open_target};
pub use sources::{SourceOrder, Sources};
