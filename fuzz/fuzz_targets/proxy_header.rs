//! Fuzzes floe-server with `check_proxy_header`.

#![no_main]

#[path = "../src/server.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod server;

libfuzzer_sys::fuzz_target!(|data: &[u8]| server::check_proxy_header(data));
