//! The rule that a test which sleeps says why. A test that waits for a condition polls with
//! `wait_until`.

use super::Fault;

/// Returns the sleeps of a test without a comment directly above them.
pub(super) fn faults(file: &str, text: &str) -> Vec<Fault> {
    let is_test = ["/tests/", "/tests.rs", "/floe-testkit/"];
    if !is_test.iter().any(|part| file.contains(part)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let mut above = "";
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.contains(CALL) && !line.starts_with("//") && !above.starts_with("// ") {
            faults.push(Fault::new(file, number + 1, "sleeps", WHY));
        }
        above = line;
    }
    faults
}

const CALL: &str = concat!("thread::sle", "ep(");
const WHY: &str = "poll with `wait_until`, or say in a comment above why the test must wait";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_in_a_test_needs_a_reason() {
        let bare = format!("fn a() {{\n    {CALL}x);\n}}\n");
        let explained = format!("fn a() {{\n    // The reader is slow.\n    std::{CALL}x);\n}}\n");
        let count = |file, text: &str| faults(file, text).len();
        assert_eq!(count("crates/a/tests/it/b.rs", &bare), 1);
        assert_eq!(count("crates/a/src/b/tests.rs", &bare), 1);
        assert_eq!(count("crates/a/tests/it/b.rs", &explained), 0);
        assert_eq!(count("crates/a/src/b.rs", &bare), 0);
    }
}
