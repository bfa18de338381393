//! Fuzzes floe-names with `check_pin`.

#![no_main]

#[path = "../src/names.rs"]
#[expect(dead_code, reason = "each target calls one function")]
mod names;

libfuzzer_sys::fuzz_target!(|data: &[u8]| names::check_pin(data));
