//! Fuzzes `check_realisation` of `src/lib.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floe_fuzz::check_realisation(data));
