//! Tests that see no processes of other tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use crate::{find_tool, run};

/// Set for the process inside of the namespace.
const INSIDE: &str = "FLOE_TEST_PID_NAMESPACE";

/// Runs the calling test once more, as the only one in a new PID namespace.
///
/// Collectors take the paths of all processes of the machine as roots. A test that counts deleted
/// paths calls this function first. If the function returns true, the test has passed in the
/// namespace, and its caller returns at once. It returns false inside of the namespace, on a
/// machine that refuses namespaces, and if no other test runs at the same time.
///
/// # Panics
/// If the test failed in the namespace.
pub fn ran_in_pid_namespace() -> bool {
    // With one test thread, the harness runs the tests on the main thread.
    let thread = thread::current();
    let Some(test) = thread.name().filter(|name| *name != "main") else {
        return false;
    };
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let Some(unshare) = working_unshare() else {
        return false;
    };
    let mut command = Command::new(unshare);
    command
        .args(NAMESPACE)
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", "--test-threads=1", test]);
    let ran = run(command.env(INSIDE, "1")).expect(0);
    assert!(
        ran.stdout.contains("test result: ok. 1 passed"),
        "{}",
        ran.stdout
    );
    true
}

/// The arguments of unshare(1).
const NAMESPACE: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

/// Returns unshare(1) if it can make PID namespaces here.
fn working_unshare() -> Option<&'static PathBuf> {
    static UNSHARE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let unshare = find_tool("unshare", "util-linux")?;
        let probe = run(Command::new(&unshare).args(NAMESPACE).arg("true"));
        (probe.code == Some(0)).then_some(unshare)
    };
    UNSHARE.get_or_init(find).as_ref()
}
