//! The local store: an adapter over floe-store.

pub(crate) mod source;
