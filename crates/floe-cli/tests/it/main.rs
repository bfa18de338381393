//! Integration tests of the `floe` binary against real Nix and real servers.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod benches;
mod caches;
mod compressions;
mod configs;
mod copies;
mod demo;
mod environments;
mod faults;
mod faulty;
mod giants;
mod hostile;
mod installs;
mod interrupts;
mod keys;
mod kills;
mod live_store;
mod living;
mod logs;
mod manual;
mod memory;
mod mounts;
mod optimises;
mod proxies;
mod quarters;
mod refuses;
mod resumes;
mod reuses;
mod roots;
mod serve_answers;
mod serve_clients;
mod serve_differential;
mod serve_hostile;
mod serve_live;
mod serve_options;
mod server;
mod serving;
mod shapes;
mod spaces;
mod static_binary;
mod support;
mod traces;
mod verifies;
