//! Fuzzes `check_messages_cbor` of `src/messages.rs`.

#![no_main]

#[path = "../src/messages.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::check_messages_cbor(data));
