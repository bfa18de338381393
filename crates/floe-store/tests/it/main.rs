//! Tests of the public interface of floe-store, on real file systems.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, wherever it stands"
)]

mod create;
mod gc;
mod live;
mod optimise;
mod realisations;
mod recovered_trees;
mod register;
mod support;
mod tree;
mod unfinished_trees;
