//! Fixtures, corpora and fake servers that the tests of several crates share.
//!
//! Other crates use this one only as a dev-dependency; `cargo xtask check` enforces that.
//!
//! `cargo xtask test` prepares the reference tools and passes their locations in `FLOE_TEST_*`.
//! If one is missing, the test records that in the skips file. xtask prints all skips, and fails
//! on them in CI.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

pub mod conformance;
pub mod fault_proxy;
pub mod fault_server;
pub mod fuzz_corpus;
mod haproxy;
pub mod http2_fault_server;
pub mod http_client;
mod hydra;
pub mod nars;
pub mod recording_disk;
pub mod socket_proxy;
pub mod synthetic_cache;

mod certificates;
mod command;
mod copy;
mod corpus;
mod damage;
mod memory_source;
mod memory_storage;
mod memory_target;
mod nginx;
mod nix;
mod nix_daemon;
mod nobody;
mod pid_namespace;
mod poll;
mod ports;
mod random;
mod s3_server;
mod scratch;
mod skip;
mod sshd;
mod store_tree;

pub use certificates::{
    Authority, CERTIFICATE_OF_VERSION_1, Certificates, Issued, create_certificates,
};
pub use command::{CommandOutput, hide_nix_conf, run};
pub use copy::{copy_program, copy_tree};
pub use corpus::{Corpus, corpora, corpus};
pub use damage::with_wrong_xz_check;
pub use haproxy::{Haproxy, haproxy};
pub use hydra::Hydra;
pub use memory_source::{MemorySource, SourceFault};
pub use memory_storage::MemoryStorage;
pub use memory_target::{MemoryTarget, Registration};
pub use nginx::{Nginx, nginx};
pub use nix::{Nix, nixes};
pub use nix_daemon::NixDaemon;
pub use nobody::{Exchanges, NOBODY_UID, become_nobody, setpriv_to_nobody};
pub use pid_namespace::ran_in_pid_namespace;
pub use poll::{TIMEOUT, wait_at_most, wait_until};
pub use ports::{free_ports, with_free_ports};
pub use random::XorShift;
pub use s3_server::{
    S3_ACCESS_KEY, S3_SECRET_KEY, S3Server, s3_server, s3_server_on_small_disk, s3_servers,
};
pub use scratch::{Scratch, scratch, scratch_in};
pub use skip::{find_tool, skip};
pub use sshd::{Sshd, sshd, sshd_with};
pub use store_tree::tree;
