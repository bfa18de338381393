//! Frees space: deletes paths that no root keeps, and links equal files.

mod collector;
mod optimise;

pub use collector::{
    AlivePath, Collector, DeadFile, DeleteError, DeleteFailure, DeleteOptions, Garbage, GcResults,
    GcSettings,
};
pub use optimise::OptimiseResults;
