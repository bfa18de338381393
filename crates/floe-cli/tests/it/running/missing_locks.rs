//! File systems without locks.

use std::process::Command;
use std::time::{Duration, Instant};

use floe_testkit::{CommandOutput, find_tool, ran_in_pid_namespace, run};

use super::programs;

/// Runs a command with a system call that fails.
fn run_with_fault(command: &Command, call: &str, error: &str, files: &[String]) -> CommandOutput {
    let mut strace = Command::new("timeout");
    strace.args(["-s", "KILL", "25", "strace", "-f", "-qq", "-o", "/dev/null"]);
    strace.args(["-e", &format!("inject={call}:error={error}")]);
    strace.args(["-e", &format!("trace={call}")]);
    for file in files {
        strace.args(["-P", file]);
    }
    strace.arg(command.get_program()).args(command.get_args());
    let environment = command.get_envs();
    strace.envs(environment.filter_map(|(name, value)| Some((name, value?))));
    strace.current_dir(command.get_current_dir().unwrap());
    run(&mut strace)
}

#[test]
fn database_without_locks_is_named_at_once() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(programs) = programs() else { return };
    if find_tool("strace", "strace").is_none() {
        return;
    }
    let root = programs.root.display().to_string();
    let files = ["schema", "db.sqlite", "db.sqlite-shm"];
    let files = files.map(|name| format!("{root}/nix/var/nix/db/{name}"));
    for arguments in [
        &["info", "--store", &root, "--all"][..],
        &["gc", "--root", &root],
    ] {
        let command = programs.command(arguments);
        let began = Instant::now();
        let ran = run_with_fault(&command, "fcntl", "ENOLCK", &files).expect(1);
        assert!(began.elapsed() < Duration::from_secs(15));
        assert!(
            ran.stderr.contains("the file system supports no locks"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn run_without_flock_warns_and_runs_the_program() {
    let Some(programs) = programs() else { return };
    if find_tool("strace", "strace").is_none() {
        return;
    }
    for error in ["ENOLCK", "ENOSYS", "EIO"] {
        let command = programs.run_tool(&["7"]);
        let ran = run_with_fault(&command, "flock", error, &[]).expect(7);
        assert!(ran.stderr.contains("not protected"), "{}", ran.stderr);
        assert!(ran.stdout.contains("arguments: 7"), "{}", ran.stdout);
    }
}
