//! The tests that every kind of source, target and storage must pass.
//!
//! A test of a kind makes the place of its paths from [`Contents`], opens it, and calls
//! [`check_source`], [`check_target`], [`check_reader`] or [`check_writer`].

mod contents;
mod incoming;
mod source;
mod storage;
mod target;

pub use contents::{Contents, KnownPath};
pub use source::{SourceFixture, check_source, check_unreadable_nar};
pub use storage::{check_reader, check_writer};
pub use target::{TargetFixture, check_target};
