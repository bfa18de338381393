//! One run of one command: its time and the resources it used.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use wait4::Wait4 as _;

use crate::error::{BenchError, IoContext as _};
use crate::sample::Sample;

/// A command with its surroundings.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Variables to set; `None` removes a variable.
    pub environment: Vec<(String, Option<String>)>,
    /// The file that receives stderr while the command runs.
    pub stderr: PathBuf,
    /// A command that runs longer is ended and counts as failed.
    pub deadline: Duration,
}

/// Runs a command to its end, in a process group of its own. When the deadline has passed or
/// `stop` is raised, the whole group is ended.
///
/// The peak memory is at least that of the benchmark itself, because a child process starts with
/// the resident set of its parent.
///
/// Errors: as named in [`BenchError`]; in every case no process of the command is left.
pub fn run(invocation: &Invocation, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let arguments = &invocation.arguments;
    let program = arguments.first().cloned().unwrap_or_default();
    let stderr = File::create(&invocation.stderr).at("create", &invocation.stderr)?;
    let mut command = Command::new(&program);
    command
        .args(arguments.iter().skip(1))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .process_group(0);
    for (name, value) in &invocation.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let began = Instant::now();
    let child = command.spawn().at("start", &program)?;
    let ended = wait(&child, began + invocation.deadline, stop);
    let seconds = began.elapsed().as_secs_f64();
    if !matches!(ended, Ok(End::Exit)) {
        terminate(&child);
    }
    let usage = child.wait4().at("wait for", arguments.join(" "))?;
    let command = shell_words::join(arguments);
    match ended.at("wait for", arguments.join(" "))? {
        End::Exit if usage.status.success() => {
            let system_seconds = usage.rusage.stime.as_secs_f64();
            Ok(Sample {
                cpu_seconds: Some(usage.rusage.utime.as_secs_f64() + system_seconds),
                system_seconds: Some(system_seconds),
                peak_memory: Some(usage.rusage.maxrss),
                ..Sample::timed(seconds, 1.0)
            })
        }
        End::Exit => Err(BenchError::Failed {
            command,
            status: usage.status,
            stderr: stderr_tail(&invocation.stderr).unwrap_or_default(),
        }),
        End::Stop => Err(BenchError::Interrupted),
        End::Deadline => Err(BenchError::Deadline {
            command,
            seconds: invocation.deadline.as_secs(),
        }),
    }
}

/// The reason why waiting for a command ended.
enum End {
    Exit,
    Stop,
    Deadline,
}

fn wait(child: &Child, deadline: Instant, stop: &AtomicBool) -> rustix::io::Result<End> {
    let descriptor = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    loop {
        let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut polled, Some(&STOP_POLL_INTERVAL)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(End::Exit),
            Err(error) => return Err(error),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(End::Stop);
        }
        if Instant::now() >= deadline {
            return Ok(End::Deadline);
        }
    }
}

/// Sends SIGTERM to the process group, then SIGKILL after a grace period. Errors are ignored: the
/// group may have ended in the meantime.
fn terminate(child: &Child) {
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let never = AtomicBool::new(false);
    let ended = wait(child, Instant::now() + TERMINATE_GRACE_PERIOD, &never);
    if !matches!(ended, Ok(End::Exit)) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The end of a stderr file, for an error message.
fn stderr_tail(file: &Path) -> io::Result<String> {
    let mut file = File::open(file)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(STDERR_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes a directory tree, if it exists, even if its directories are read-only as in a store.
///
/// Errors: the tree belongs to another user, or the file system is read-only.
pub fn remove_tree(path: &Path) -> Result<(), BenchError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            make_writable(path)?;
            fs::remove_dir_all(path).at("remove", path)
        }
    }
}

fn make_writable(path: &Path) -> Result<(), BenchError> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at("make writable", path)?;
    for entry in fs::read_dir(path).at("list", path)? {
        let entry = entry.at("list", path)?;
        if entry.file_type().at("examine", entry.path())?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

/// How often a raised stop is looked for. The end of a command is noticed at once.
const STOP_POLL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Lets a program remove its temporary files.
const TERMINATE_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Enough for an error message, and little of a progress log.
const STDERR_TAIL_BYTES: u64 = 2000;

#[cfg(test)]
mod tests;
