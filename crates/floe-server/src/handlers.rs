//! What is answered, a module for each kind of request.

mod encoded;
pub(crate) mod file;
pub(crate) mod listing;
pub(crate) mod log;
pub(crate) mod nar;
pub(crate) mod narinfo;
mod ranged;
pub(crate) mod realisation;
pub(crate) mod root;
