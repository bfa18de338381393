//! Fuzzes the TLS of floe-server with `check_handshake`.

#![no_main]

#[path = "../src/tls.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod tls;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tls::check_handshake(data));
