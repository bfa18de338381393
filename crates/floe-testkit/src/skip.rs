//! The record of tests that could not compare with a reference tool.

use std::fs::OpenOptions;
use std::io::Write as _;

/// Records that a reference tool is missing.
#[expect(
    clippy::print_stderr,
    reason = "skips must be visible even without a skips file"
)]
pub fn skip(name: &str, why: &str) {
    eprintln!("SKIPPED: {name}: {why}");
    if let Some(file) = std::env::var_os("FLOE_TEST_SKIPS") {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .unwrap();
        writeln!(file, "{name}: {why}").unwrap();
    }
}
