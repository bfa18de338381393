//! Fuzzes `check_lease` of `src/lib.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floe_fuzz::check_lease(data));
