//! libfloe as a host meets it: through its C ABI.

#![allow(unsafe_code, reason = "a host calls C functions")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, wherever it stands"
)]

mod closing;
mod contract;
mod copies;
mod counts;
mod defects;
mod descriptors;
mod host;
mod languages;
mod queues;
mod requests;
mod shared_store;
