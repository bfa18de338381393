//! Commands that succeed, fail, run too long, or cannot start.

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
fn run_measures_time_memory_and_children() {
    let never = AtomicBool::new(false);
    let busy = "test $FLOE_GREETING = hello; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let sample = sh(&format!("sh -c '{busy}'; exit 0"), LONG, &never).unwrap();
    assert!(sample.seconds > 0.0 && sample.peak_memory > Some(100_000));
    assert!(sample.cpu_seconds > Some(0.0), "{sample:?}");
    assert!(sample.cpu_seconds >= sample.system_seconds);
}

#[test]
fn failed_command_reports_status_and_stderr() {
    let never = AtomicBool::new(false);
    let error = sh("echo no such luck >&2; exit 7", LONG, &never).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no such luck") && text.contains('7'),
        "{text}"
    );
}

#[test]
fn missing_program_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let invocation = Invocation {
        arguments: vec!["/nonexistent/floe".into()],
        environment: Vec::new(),
        stderr: directory.path().join("stderr"),
        deadline: LONG,
    };
    let error = run(&invocation, &AtomicBool::new(false)).unwrap_err();
    assert!(
        matches!(
            error,
            BenchError::File {
                action: "start",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("/nonexistent/floe"), "{error}");
}

#[test]
fn deadline_ends_command_and_children() {
    let never = AtomicBool::new(false);
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
    let error = sh(&script, Duration::from_secs(5), &never).unwrap_err();
    assert!(matches!(error, BenchError::Deadline { .. }), "{error}");
    let pid = fs::read_to_string(&pid_file).unwrap();
    let status = format!("/proc/{}/status", pid.trim());
    // Init reaps the grandchild, perhaps later; until then it is a zombie.
    let is_gone = || fs::read_to_string(&status).map_or(true, |text| text.contains("State:\tZ"));
    let deadline = Instant::now() + LONG;
    while !is_gone() {
        assert!(Instant::now() < deadline, "{pid} is still there");
        // This crate does not use the poll of the test kit.
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn raised_stop_ends_a_run() {
    let stop = AtomicBool::new(true);
    let error = sh("sleep 1000", LONG, &stop).unwrap_err();
    assert!(matches!(error, BenchError::Interrupted), "{error}");
}

#[test]
fn remove_tree_removes_read_only_directories() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    fs::write(tree.join("a/file"), "x").unwrap();
    for read_only in [tree.join("a"), tree.clone()] {
        fs::set_permissions(read_only, fs::Permissions::from_mode(0o555)).unwrap();
    }
    remove_tree(&tree).unwrap();
    assert!(!tree.exists());
    remove_tree(&tree).unwrap();
}
