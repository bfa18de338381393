//! Changes of a store that add or repair paths, and the recovery after a crash.

mod add_to_store;
mod crash_recovery;
mod derivation_checks;
mod rebuild;
mod recovered_trees;
mod register;
mod register_existing;
mod repair;
mod restart_check;
mod sync_record;
mod writer;

pub(crate) use crash_recovery::Recovery;
pub use rebuild::{OldRow, StoreRebuild};
pub use register::{RegisterOutcome, StagedPath};
pub use register_existing::ExistingTrees;
pub use sync_record::recorded_damage;
pub use writer::StoreWriter;
