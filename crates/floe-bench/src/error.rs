//! What can go wrong with a benchmark.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a run has no figure, or a benchmark cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file or directory of the benchmark itself.
    #[error("{action} {}: {source}", path.display())]
    File {
        /// What was attempted, such as "removing".
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program that could not be started.
    #[error("starting {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A command that ended with a failure.
    #[error("{command}: {status}{}", said(stderr))]
    Failed {
        /// The command, as a shell would take it.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// A command that took too long.
    #[error("{command}: not done after {seconds} s")]
    Deadline {
        /// The command, as a shell would take it.
        command: String,
        /// The deadline.
        seconds: u64,
    },
    /// A command that ended well and did something else than it should.
    #[error("wrong result: {0}")]
    Result(String),
    /// A template that makes no command.
    #[error("the command `{text}`: {reason}")]
    Template {
        /// The template.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The benchmark was told to stop.
    #[error("interrupted")]
    Interrupted,
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!("; it said:\n{text}"),
    }
}

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
