//! Commands that end well, badly, late and not at all.

use super::*;

fn sh(script: &str, deadline: Duration, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let directory = tempfile::tempdir().unwrap();
    let invocation = Invocation {
        arguments: vec!["sh".into(), "-c".into(), script.into()],
        environment: vec![("FLOE_GREETING".into(), Some("hello".into()))],
        stderr: directory.path().join("stderr"),
        deadline,
    };
    run(&invocation, stop)
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_run_has_time_and_memory_and_the_time_of_its_children() {
    let never = AtomicBool::new(false);
    let busy = "test $FLOE_GREETING = hello; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let sample = sh(&format!("sh -c '{busy}'; exit 0"), LONG, &never).unwrap();
    assert!(sample.seconds > 0.0 && sample.peak_memory > 100_000);
    assert!(sample.user_seconds > 0.0, "{sample:?}");
    assert!(sample.cpu_seconds() >= sample.user_seconds);
}

#[test]
fn a_failed_command_says_how_it_ended_and_what_it_wrote() {
    let never = AtomicBool::new(false);
    let error = sh("echo no such luck >&2; exit 7", LONG, &never).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no such luck") && text.contains('7'),
        "{text}"
    );
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let invocation = Invocation {
        arguments: vec!["/nonexistent/floe".into()],
        environment: Vec::new(),
        stderr: directory.path().join("stderr"),
        deadline: LONG,
    };
    let error = run(&invocation, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, BenchError::Start { .. }), "{error}");
    assert!(error.to_string().contains("/nonexistent/floe"), "{error}");
}

#[test]
fn what_is_not_done_at_the_deadline_is_ended_with_its_children() {
    let never = AtomicBool::new(false);
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
    let error = sh(&script, Duration::from_secs(5), &never).unwrap_err();
    assert!(matches!(error, BenchError::Deadline { .. }), "{error}");
    let pid = fs::read_to_string(&pid_file).unwrap();
    let status = format!("/proc/{}/status", pid.trim());
    // The grandchild is reaped by somebody else, perhaps later; until then it is a zombie.
    let is_gone = || fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
    let deadline = Instant::now() + LONG;
    while !is_gone() {
        assert!(Instant::now() < deadline, "{pid} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_raised_stop_ends_a_run() {
    let stop = AtomicBool::new(true);
    let error = sh("sleep 1000", LONG, &stop).unwrap_err();
    assert!(matches!(error, BenchError::Interrupted), "{error}");
}

#[test]
fn sealed_directories_are_removed() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    for sealed in [tree.join("a"), tree.clone()] {
        fs::set_permissions(sealed, fs::Permissions::from_mode(0o555)).unwrap();
    }
    remove(&tree).unwrap();
    assert!(!tree.exists());
    remove(&tree).unwrap();
}
