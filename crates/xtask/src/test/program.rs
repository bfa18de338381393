//! `cargo xtask run-test-program`: the runner that cargo starts each test program with, so that it
//! prints the times of its tests.
//!
//! The test harness prints times only with an unstable option. Its variable is set for the test
//! program alone: with it, a build of cargo would be another one.

use std::env::{self, consts::ARCH};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The name of the command.
pub(crate) const NAME: &str = "run-test-program";

/// Replaces this process by the test program of the first argument, with the others as its
/// arguments. Returns why it could not.
pub(crate) fn run(arguments: &[String]) -> String {
    let [program, arguments @ ..] = arguments else {
        return format!("{NAME} takes a program");
    };
    let mut test = Command::new(program);
    // A test may run cargo, which runs other programs in this way, too.
    if is_test_program(program) {
        test.args(["-Zunstable-options", "--report-time"]);
        test.env("RUSTC_BOOTSTRAP", "1");
    }
    let error = test.args(arguments).exec();
    format!("cannot run {program}: {error}")
}

/// Whether cargo has built a program as a test.
fn is_test_program(program: &str) -> bool {
    let directory = Path::new(program).parent();
    directory.is_some_and(|directory| directory.ends_with("deps"))
}

/// Returns the variable that makes cargo start the test programs of this machine through this
/// program. Returns `None` for a path with white space, which cargo would split.
pub(super) fn runner() -> Option<(String, String)> {
    let own = env::current_exe().ok()?;
    let own = own
        .to_str()
        .filter(|own| !own.contains(char::is_whitespace))?;
    let machine = ARCH.to_uppercase();
    let variable = format!("CARGO_TARGET_{machine}_UNKNOWN_LINUX_GNU_RUNNER");
    Some((variable, format!("{own} {NAME}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_programs_take_options_of_the_harness() {
        assert!(is_test_program("/target/debug/deps/it-0123456789abcdef"));
        assert!(!is_test_program("target/release/floe"));
        assert!(!is_test_program("/target/debug/examples/demo"));
    }
}
