//! Fuzzes `check_nix32` of the library beside it.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floe_fuzz::check_nix32(data));
