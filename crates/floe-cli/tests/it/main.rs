//! floe as a user meets it: the binary, with the real Nix and real servers on the other side.

mod copies;
mod demo;
mod faulty;
mod installs;
mod keys;
mod refuses;
mod server;
mod support;
mod verifies;
