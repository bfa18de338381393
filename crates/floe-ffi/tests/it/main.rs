//! libfloe through its C ABI, as a host uses it.

#![allow(unsafe_code, reason = "the tests call C functions")]
#![allow(clippy::unwrap_used, reason = "an unwrap in a test is an assertion")]

mod abi_version;
mod closing;
mod contract;
mod copies;
mod counts;
mod defects;
mod descriptors;
mod embedding_guide;
mod host;
mod languages;
mod network;
mod queues;
mod requests;
mod shared_store;
