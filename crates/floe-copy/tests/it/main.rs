//! Tests of the copy pipeline without a server and without a store.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod added_files;
mod collection_model;
mod failover;
mod leases;
mod pipeline;
