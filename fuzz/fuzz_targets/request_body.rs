//! Fuzzes floe-server with `check_request_body`.

#![no_main]

#[path = "../src/server.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::check_request_body(data));
