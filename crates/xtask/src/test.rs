//! `cargo xtask test`: everything that CI runs, in one order, to the end.
//!
//! A step that fails stops none of the others, so that one run shows every fault. The last line
//! on stdout is `floe: N passed, N failed, N skipped`; programs read it.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::{Outcome, cargo, check, dist, generate, reference_tools};

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let full = match arguments {
        [] => false,
        [argument] if argument == "--full" => true,
        _ => {
            return Ok(Outcome::Usage(format!(
                "test takes only --full, not {arguments:?}"
            )));
        }
    };
    let mut tally = Tally {
        strict: in_ci(),
        ..Tally::default()
    };

    heading("reference_tools");
    let mut reference_tools = reference_tools::prepare(root, full)?;
    for skip in &reference_tools.missing {
        println!("SKIPPED REFERENCE TOOL: {skip}");
        tally.skip(format!("reference tool {skip}"));
    }
    if reference_tools.missing.is_empty() {
        tally.passed += 1;
    }

    tally.step("format", &mut cargo(root, &["fmt", "--all", "--check"]));
    tally.rules(root);
    tally.generated(root);
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    tally.step("clippy", &mut cargo(root, &clippy));
    let mut doc = cargo(root, &["doc", "--workspace", "--no-deps"]);
    tally.step("doc", doc.env("RUSTDOCFLAGS", "-D warnings"));
    tally.step(
        "build",
        &mut cargo(root, &["build", "--package", "floe-cli"]),
    );
    if full {
        let floe = tally.dist(root);
        reference_tools
            .variables
            .extend(floe.map(|floe| ("FLOE_TEST_DIST", floe.into())));
    }
    tally.tests(root, &reference_tools.variables);
    tally.models(root);
    for skip in reference_tools::skips_of_tests(&reference_tools.skips_file)? {
        tally.skip_loudly(skip);
    }
    Ok(tally.end())
}

/// In CI nothing may be skipped: a green run there means that everything was looked at.
fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

fn heading(name: &str) {
    println!("\n=== {name}");
}

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// One line for each failure, for the summary.
    faults: Vec<String>,
    /// Whether a skip is a failure as well.
    strict: bool,
}

impl Tally {
    fn fail(&mut self, what: String) {
        self.failed += 1;
        self.faults.push(what);
    }

    fn skip(&mut self, what: String) {
        self.skipped += 1;
        if self.strict {
            self.fail(format!("skipped, which CI does not allow: {what}"));
        }
    }

    /// Skips, and says so at once.
    pub(crate) fn skip_loudly(&mut self, what: String) {
        println!("SKIPPED: {what}");
        self.skip(what);
    }

    fn count(&mut self, name: &str, result: std::result::Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.fail(format!("{name}: {why}")),
        }
    }

    /// A command that says by its exit status whether it is content.
    pub(crate) fn step(&mut self, name: &str, command: &mut Command) {
        heading(name);
        let result = match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(status.to_string()),
            Err(error) => Err(error.to_string()),
        };
        self.count(name, result);
    }

    fn rules(&mut self, root: &Path) {
        heading("check");
        let result = match check::faults(root) {
            Ok(faults) if faults.is_empty() => Ok(()),
            Ok(faults) => {
                faults.iter().for_each(|fault| println!("{fault}"));
                Err(format!("{} faults", faults.len()))
            }
            Err(error) => Err(format!("{error:#}")),
        };
        self.count("check", result);
    }

    fn generated(&mut self, root: &Path) {
        heading("generate");
        let result = match generate::outdated(root) {
            Ok(old) if old.is_empty() => Ok(()),
            Ok(old) => {
                old.iter()
                    .for_each(|(path, _)| println!("{path}: not current"));
                Err(format!("{} files are not current", old.len()))
            }
            Err(error) => Err(format!("{error:#}")),
        };
        self.count("generate", result);
    }

    /// The static binary, for its tests.
    fn dist(&mut self, root: &Path) -> Option<PathBuf> {
        heading("dist");
        let made = dist::make(root).map_err(|error| format!("{error:#}"));
        let floe = made.as_ref().ok().cloned();
        self.count("dist", made.map(|_| ()));
        floe
    }

    /// The tests themselves; each counts for itself.
    fn tests(&mut self, root: &Path, variables: &[(&str, OsString)]) {
        let mut command = cargo(root, &["test", "--workspace", "--no-fail-fast"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        self.tests_of("test", &mut command);
    }

    /// The ingress in every order of events, as loom plays them. It is built apart, since its
    /// atomics are others then.
    fn models(&mut self, root: &Path) {
        let mut command = cargo(
            root,
            &["test", "--release", "--package", "floe-queue", "--lib"],
        );
        command.env("RUSTFLAGS", "--cfg loom").env(
            "CARGO_TARGET_DIR",
            crate::target_directory(root).join("loom"),
        );
        self.tests_of("models", &mut command);
    }

    /// A command that runs test programs; each of their tests counts for itself.
    pub(crate) fn tests_of(&mut self, name: &str, command: &mut Command) {
        heading(name);
        match run_tests(command) {
            Ok((seen, success)) => self.add(seen, success),
            Err(error) => self.fail(format!("test: {error:#}")),
        }
    }

    fn add(&mut self, seen: TestOutput, success: bool) {
        self.passed += seen.passed;
        self.failed += seen.failed;
        self.skipped += seen.ignored;
        let named = seen.names.len();
        self.faults
            .extend(seen.names.into_iter().map(|name| format!("test {name}")));
        for _ in named..seen.failed {
            self.faults
                .push("test: one that did not tell its name".into());
        }
        for _ in seen.ended..seen.begun {
            self.fail("test: a test program ended without a result".into());
        }
        if !success && seen.failed == 0 && seen.ended >= seen.begun {
            self.fail("test: cargo test failed before or beside the tests".into());
        }
    }

    /// Says what it came to.
    pub(crate) fn end(&self) -> Outcome {
        if !self.faults.is_empty() {
            println!("\nfailed:");
            self.faults.iter().for_each(|fault| println!("  {fault}"));
        }
        println!("{}", self.last_line());
        match self.failed {
            0 => Outcome::Good,
            _ => Outcome::Bad,
        }
    }

    fn last_line(&self) -> String {
        format!(
            "floe: {} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// What the output of test programs said.
#[derive(Debug, Default, PartialEq)]
struct TestOutput {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// Test programs that announced their tests, and those that came to a result.
    begun: usize,
    ended: usize,
    names: Vec<String>,
}

impl TestOutput {
    fn line(&mut self, line: &str) {
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
        } else if let Some(name) = line.strip_prefix("test ") {
            if let Some(name) = name.strip_suffix(" ... FAILED") {
                self.names.push(name.into());
            }
        } else if let Some(count) = line.strip_prefix("running ")
            && (count.ends_with(" tests") || count == "1 test")
        {
            self.begun += 1;
        }
    }
}

/// Runs it, hands its stdout through line by line, and reads along.
fn run_tests(command: &mut Command) -> Result<(TestOutput, bool)> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("starting cargo test")?;
    let pipe = child.stdout.take().context("cargo test has no stdout")?;
    let mut seen = TestOutput::default();
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader
        .read_until(b'\n', &mut line)
        .context("reading from cargo test")?
        > 0
    {
        // A closed stdout is no reason to stop the tests: the exit code still tells.
        let _ = std::io::stdout().write_all(&line);
        seen.line(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    let status = child.wait().context("waiting for cargo test")?;
    Ok((seen, status.success()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(output: &str) -> TestOutput {
        let mut seen = TestOutput::default();
        output.lines().for_each(|line| seen.line(line));
        seen
    }

    const GOOD: &str = "running 2 tests\ntest a ... ok\ntest b ... ignored\n\n\
        test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; \
        finished in 0.00s\n";
    const BAD: &str = "running 1 test\ntest c::d ... FAILED\n\
        test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
    const CRASHED: &str = "running 3 tests\ntest e ... ok\n";

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let mut tally = Tally::default();
        tally.add(seen(&format!("{GOOD}{BAD}")), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.faults, ["test c::d"]);
    }

    #[test]
    fn a_test_program_that_dies_is_a_failure() {
        let mut tally = Tally::default();
        tally.add(seen(&format!("{CRASHED}{GOOD}")), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_build_that_fails_is_a_failure_though_no_test_failed() {
        let mut tally = Tally::default();
        tally.add(seen(GOOD), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
        let mut tally = Tally::default();
        tally.add(seen(GOOD), true);
        assert_eq!(tally.last_line(), "floe: 1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_skip_is_a_failure_in_ci_only() {
        for (strict, expected) in [
            (false, "floe: 0 passed, 0 failed, 1 skipped"),
            (true, "floe: 0 passed, 1 failed, 1 skipped"),
        ] {
            let mut tally = Tally {
                strict,
                ..Tally::default()
            };
            tally.skip("reference tool nginx: absent".into());
            assert_eq!(tally.last_line(), expected);
        }
    }

    #[test]
    fn a_step_counts_as_one_whether_it_fails_or_cannot_start() {
        let mut tally = Tally::default();
        tally.step("good", &mut Command::new("true"));
        tally.step("bad", &mut Command::new("false"));
        tally.step("absent", &mut Command::new("a-command-that-nobody-has"));
        assert_eq!(tally.last_line(), "floe: 1 passed, 2 failed, 0 skipped");
        assert!(
            tally.faults[0].starts_with("bad: exit status: 1"),
            "{:?}",
            tally.faults
        );
    }
}
