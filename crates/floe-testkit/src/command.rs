//! Commands that tests run to completion.

use std::ffi::OsString;
use std::process::{Command, Output};

use serde_json::Value;

/// Hides the machine's and the user's nix.conf from a command that names no other.
pub fn hide_nix_conf(command: &mut Command) {
    let set: Vec<OsString> = command.get_envs().map(|(name, _)| name.into()).collect();
    let is_set = |name: &str| set.iter().any(|set| set == name);
    if !is_set("NIX_CONF_DIR") {
        command.env("NIX_CONF_DIR", "/nonexistent/nix");
    }
    if !is_set("NIX_USER_CONF_FILES") {
        command.env("NIX_USER_CONF_FILES", "");
    }
    for name in [
        "NIX_CONFIG",
        "NIX_REMOTE",
        "NIX_STORE_DIR",
        "NIX_STATE_DIR",
        "NIX_LOG_DIR",
    ] {
        if !is_set(name) {
            command.env_remove(name);
        }
    }
}

/// Exit code and output of a finished command, for assertions.
pub struct CommandOutput {
    /// The exit code, or `None` after a signal.
    pub code: Option<i32>,
    /// The output on stdout.
    pub stdout: String,
    /// The same, also if it is not UTF-8.
    pub stdout_bytes: Vec<u8>,
    /// The output on stderr.
    pub stderr: String,
    line: String,
}

/// Runs a command to completion.
pub fn run(command: &mut Command) -> CommandOutput {
    let line = format!("{command:?}");
    hide_nix_conf(command);
    let output: Output = command
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    CommandOutput {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stdout_bytes: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        line,
    }
}

impl CommandOutput {
    /// Asserts the exit code.
    #[track_caller]
    pub fn expect(self, code: i32) -> CommandOutput {
        let CommandOutput {
            line,
            stdout,
            stderr,
            ..
        } = &self;
        assert_eq!(
            self.code,
            Some(code),
            "{line}\nstdout: {stdout}\nstderr: {stderr}"
        );
        self
    }

    /// Asserts that stderr contains `part`.
    #[track_caller]
    pub fn stderr_contains(self, part: &str) -> CommandOutput {
        assert!(
            self.stderr.contains(part),
            "{}\nlacks {part:?}: {}",
            self.line,
            self.stderr
        );
        self
    }

    /// Parses stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.line, self.stdout))
    }
}
