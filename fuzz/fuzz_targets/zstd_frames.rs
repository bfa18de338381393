//! Fuzzes `check_zstd_frames` of `src/codec.rs`.

#![no_main]

#[path = "../src/codec.rs"]
mod codec;

libfuzzer_sys::fuzz_target!(|data: &[u8]| codec::check_zstd_frames(data));
