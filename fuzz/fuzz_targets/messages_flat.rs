//! Fuzzes `check_messages_flat` of the functions for floe-messages.

#![no_main]

#[path = "../src/messages.rs"]
#[allow(dead_code, reason = "each target calls one of them")]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::check_messages_flat(data));
