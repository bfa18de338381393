//! Queries to a store, and its verification. None of them changes the store.

mod build_log;
mod closures;
mod health;
mod live;
mod order;
mod reader;
mod reference_graph;
mod verify;

pub use build_log::{BuildLog, find_logged_derivation};
pub use health::StoreHealth;
pub use live::{HashPartIndex, IndexCursor, IndexDelta, LiveStore};
pub use order::references_first;
pub use reader::StoreReader;
pub use reference_graph::{ClosureSize, GraphPath, ReferenceGraph};
pub use verify::{Damage, ProblemCause, Verification, VerifyProblem};
