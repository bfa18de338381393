//! Interrupts of a running command.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use floe_testkit::run;

/// Sends SIGINT. Asserts that the process ends soon and with the exit code of an interrupt.
#[track_caller]
pub(crate) fn assert_ends_at_sigint(mut child: Child, what: &str) {
    run(Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    let since = Instant::now();
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(130), "{what}");
    assert!(since.elapsed() < LIMIT, "{what}: {:?}", since.elapsed());
}

/// Two seconds, and what a loaded machine adds.
const LIMIT: Duration = Duration::from_secs(4);
