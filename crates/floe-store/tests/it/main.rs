//! The store through its public face, on real file systems.

mod collectors;
mod registers;
mod stores;
mod support;
mod trees;
