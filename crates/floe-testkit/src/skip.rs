//! The record of tests that could not compare with a reference tool.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

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

/// Returns the path of a program. If it is not installed, records a skip.
pub fn find_tool(name: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .map(PathBuf::from)
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        skip(
            name,
            &format!("not installed; run `cargo xtask test` as root, or install {package}"),
        );
    }
    found
}
