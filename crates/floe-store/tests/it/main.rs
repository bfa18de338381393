//! The store through its public face, on real file systems.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, wherever it stands"
)]

mod collectors;
mod live;
mod optimises;
mod registers;
mod resumes;
mod stores;
mod support;
mod trees;
