//! Errors of a benchmark.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a run gave no sample, or a benchmark cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// An operation on a program, a file or a directory of the benchmark failed.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// The verb, such as "remove".
        action: &'static str,
        /// The program, file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed with {status}{}", stderr_part(stderr))]
    Failed {
        /// The command, quoted for a shell.
        command: String,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its stderr.
        stderr: String,
    },
    /// A command did not end before its deadline.
    #[error("`{command}` did not end within {seconds} s")]
    Deadline {
        /// The command, quoted for a shell.
        command: String,
        /// The deadline.
        seconds: u64,
    },
    /// A command succeeded, but its result is wrong.
    #[error("wrong result: {0}")]
    Result(String),
    /// A command line that cannot be a [`Template`](crate::Template).
    #[error("cannot run `{text}`: {reason}")]
    Template {
        /// The command line.
        text: String,
        /// The problem.
        reason: String,
    },
    /// A variant that cannot run on this machine.
    #[error("{0}")]
    Unavailable(String),
    /// The benchmark was told to stop.
    #[error("interrupted")]
    Interrupted,
}

fn stderr_part(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; stderr:\n{text}"),
    }
}

/// Adds the operation and the file to an I/O error.
pub(crate) trait IoContext<T> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, BenchError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn at(self, action: &'static str, path: impl Into<PathBuf>) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::File {
            action,
            path: path.into(),
            source: error.into(),
        })
    }
}
