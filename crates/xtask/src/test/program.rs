//! `cargo xtask run-test-program`: the runner that cargo starts each test program with, so that it
//! prints the times of its tests.
//!
//! The test harness prints times only with an unstable option. Its variable is set for the test
//! program alone: with it, a build of cargo would be another one.

use std::env::{self, consts::ARCH};
use std::os::unix::process::CommandExt as _;
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
    test.args(["-Zunstable-options", "--report-time"]);
    let error = test.args(arguments).env("RUSTC_BOOTSTRAP", "1").exec();
    format!("cannot run {program}: {error}")
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
