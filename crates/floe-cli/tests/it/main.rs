//! Integration tests of the `floe` binary against real Nix and real servers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench_copy;
mod closure_shapes;
mod compression;
mod concurrent_nix;
mod configuration;
mod copy;
mod corrupt_caches;
mod cpu_quota;
mod damaged_targets;
mod demo;
mod disk_space;
mod environment;
mod faults;
mod faulty_cache;
mod gc_roots;
mod hostile_nars;
mod install;
mod interrupt;
mod json_log;
mod keys;
mod kill;
mod large_inputs;
mod live_store;
mod lying_caches;
mod man_pages;
mod memory_use;
mod multiple_caches;
mod optimise;
mod proxy;
mod resume;
mod reuse;
mod serve_clients;
mod serve_concurrent_nix;
mod serve_differential;
mod serve_hostile;
mod serve_options;
mod serve_responses;
mod server_process;
mod static_binary;
mod store_uris;
mod support;
mod tmpfs_mount;
mod trace;
mod verify;
