//! Fuzzes `check_cache_info` of `src/lib.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| floe_fuzz::check_cache_info(data));
