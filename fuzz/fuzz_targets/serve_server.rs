//! Fuzzes `check_serve_server` of `src/wire.rs`.

#![no_main]

#[path = "../src/wire.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod wire;

libfuzzer_sys::fuzz_target!(|data: &[u8]| wire::check_serve_server(data));
