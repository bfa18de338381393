//! The output of test programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::times::{TimedTest, ended_test};

/// Counts in the output of test programs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TestOutput {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
    /// Test programs that announced their tests, and those that printed a result.
    pub(super) begun: usize,
    pub(super) ended: usize,
    /// Names of failed tests.
    pub(super) names: Vec<String>,
    /// The tests whose times are known.
    pub(super) times: Vec<TimedTest>,
}

impl TestOutput {
    pub(super) fn line(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.ended += 1;
            // `ok. 3 passed; 0 failed; 1 ignored; …`
            let counts = result.split_once(". ").map_or("", |(_, counts)| counts);
            for count in counts.split("; ") {
                let Some((number, what)) = count.split_once(' ') else {
                    continue;
                };
                let number = number.parse().unwrap_or(0);
                match what {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.ignored += number,
                    _ => {}
                }
            }
        } else if let Some((name, result, time)) = ended_test(line) {
            if result == "FAILED" {
                self.names.push(name.into());
            }
            let name = name.to_owned();
            self.times.extend(time.map(|time| TimedTest { name, time }));
        } else if let Some(count) = line.strip_prefix("running ")
            && (count.ends_with(" tests") || count == "1 test")
        {
            self.begun += 1;
        }
    }
}

/// Runs a command, copies its stdout line by line, and counts the results in it.
pub(super) fn run_tests(command: &mut Command) -> Result<(TestOutput, bool)> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let pipe = child.stdout.take().context("cargo test has no stdout")?;
    let mut seen = TestOutput::default();
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader
        .read_until(b'\n', &mut line)
        .context("cannot read from cargo test")?
        > 0
    {
        // If stdout is closed, go on: the exit code still shows the result.
        let _ = std::io::stdout().write_all(&line);
        seen.line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    Ok((seen, status.success()))
}
