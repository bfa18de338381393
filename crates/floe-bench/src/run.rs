//! One run of one command: its time and what it used.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use wait4::Wait4 as _;

use crate::error::{BenchError, IoContext as _};

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// From its start to its end, in seconds.
    pub seconds: f64,
    /// CPU seconds in its own code, with that of children that it waited for.
    pub user_seconds: f64,
    /// CPU seconds in the kernel, likewise.
    pub system_seconds: f64,
    /// The most memory that one of its processes held, in bytes. A process begins with what its
    /// parent held, so this is at least what the benchmark itself holds.
    pub peak_memory: u64,
}

impl Sample {
    /// CPU seconds altogether.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
}

/// A command to be run.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Variables that are set; `None` removes one.
    pub environment: Vec<(String, Option<String>)>,
    /// Where its stderr is kept until it has ended.
    pub stderr: PathBuf,
    /// After this time it is ended and has failed.
    pub deadline: Duration,
}

/// Runs a command to its end. It gets an own process group, all of which is ended when the
/// deadline has passed or `stop` is raised.
///
/// Errors: as named in [`BenchError`]; nothing of the command is left running.
pub fn run(invocation: &Invocation, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let words = &invocation.arguments;
    let program = words.first().cloned().unwrap_or_default();
    let stderr = File::create(&invocation.stderr).at("creating", &invocation.stderr)?;
    let mut command = Command::new(&program);
    command
        .args(words.iter().skip(1))
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
    let start = |source| BenchError::Start { program, source };
    let began = Instant::now();
    let child = command.spawn().map_err(start)?;
    let ended = wait(&child, began + invocation.deadline, stop);
    let seconds = began.elapsed().as_secs_f64();
    if ended.is_err() {
        end(&child);
    }
    let used = child.wait4().at("waiting for", words.join(" "))?;
    let shown = || shell_words::join(words);
    match ended {
        Ok(()) if used.status.success() => Ok(Sample {
            seconds,
            user_seconds: used.rusage.utime.as_secs_f64(),
            system_seconds: used.rusage.stime.as_secs_f64(),
            peak_memory: used.rusage.maxrss,
        }),
        Ok(()) => Err(BenchError::Failed {
            command: shown(),
            status: used.status,
            stderr: stderr_tail(&invocation.stderr),
        }),
        Err(WaitError::Stopped) => Err(BenchError::Interrupted),
        Err(WaitError::Deadline) => Err(BenchError::Deadline {
            command: shown(),
            seconds: invocation.deadline.as_secs(),
        }),
        Err(WaitError::System(error)) => Err(error).at("waiting for", words.join(" ")),
    }
}

/// Why waiting ended before the command did.
enum WaitError {
    Stopped,
    Deadline,
    System(rustix::io::Errno),
}

fn wait(child: &Child, deadline: Instant, stop: &AtomicBool) -> Result<(), WaitError> {
    let pid = Pid::from_child(child);
    let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(WaitError::System)?;
    let slice = Timespec {
        tv_sec: 0,
        tv_nsec: STOP_POLL_NANOSECONDS,
    };
    loop {
        let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
        match poll(&mut watched, Some(&slice)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(WaitError::System(error)),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(WaitError::Stopped);
        }
        if Instant::now() >= deadline {
            return Err(WaitError::Deadline);
        }
    }
}

/// Asks the process group to end, and ends it if it does not.
fn end(child: &Child) {
    let group = Pid::from_child(child);
    // It may have ended meanwhile, which is what is wanted.
    let _ = kill_process_group(group, Signal::TERM);
    let never = AtomicBool::new(false);
    if wait(child, Instant::now() + GRACE, &never).is_err() {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// The end of what a command wrote to stderr, for its error.
fn stderr_tail(file: &std::path::Path) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(file)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(STDERR_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Removes a directory tree, also one whose directories may not be written to, as in a store.
pub(crate) fn remove(path: &std::path::Path) -> Result<(), BenchError> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(_) => {
            make_writable(path)?;
            fs::remove_dir_all(path).at("removing", path)
        }
    }
}

fn make_writable(path: &std::path::Path) -> Result<(), BenchError> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).at("unsealing", path)?;
    for entry in fs::read_dir(path).at("listing", path)? {
        let entry = entry.at("listing", path)?;
        if entry.file_type().at("examining", entry.path())?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

/// How soon a stop is noticed. The end of a command is noticed at once.
const STOP_POLL_NANOSECONDS: i64 = 100_000_000;

/// What is asked to end gets this long to remove what it has half written.
const GRACE: Duration = Duration::from_secs(5);

/// Enough for the message that says why, and not for a progress log.
const STDERR_TAIL_BYTES: u64 = 2000;

#[cfg(test)]
mod tests;
