//! `cargo xtask test`: everything that CI runs, in one order, to the end.
//!
//! A failed step does not stop the others, so that one run shows every failure. The last line on
//! stdout is `floe: N passed, N failed, N skipped`; programs read it.

mod output;
mod packages;
pub(crate) mod program;
mod quick;
mod scratch;
mod stages;
mod times;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::{Outcome, cargo, check, generate, in_ci, instructions, reference_tools, release};
use output::{TestOutput, run_tests};
use packages::{Verify, package_crates};
use quick::Linted;
use stages::{Options, STAGES};
use times::Times;

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(why) => return Ok(Outcome::Usage(why)),
    };
    let mut tally = Tally {
        // A green run of CI means that everything was tested.
        strict: in_ci(),
        is_quick: options.quick,
        is_full: options.full,
        ..Tally::default()
    };
    heading("reference tools");
    let began = Instant::now();
    let mut reference_tools = reference_tools::prepare(root, options.full)?;
    for skip in &reference_tools.missing {
        println!("SKIPPED REFERENCE TOOL: {skip}");
        tally.skip(format!("reference tool {skip}"));
    }
    if reference_tools.missing.is_empty() {
        tally.passed += 1;
    }
    tally.times.add_stage("reference tools", began.elapsed());
    for stage in STAGES.into_iter().filter(|stage| options.wants(stage)) {
        if matches!(stage, "test" | "quick") {
            let missing = reference_tools.finish();
            missing
                .into_iter()
                .for_each(|tool| tally.skip_loudly(format!("reference tool {tool}")));
        }
        tally.run_timed(stage, root, &mut reference_tools.variables);
    }
    for skip in reference_tools::skips_of_tests(&reference_tools.skips_file)? {
        tally.skip_loudly(skip);
    }
    tally.show_times(root, options.records)?;
    Ok(tally.end())
}

/// Makes a release in `target/dist` and returns this directory.
fn make_release(root: &Path) -> Result<PathBuf> {
    let target = crate::target_directory(root);
    let key = target.join("test-release-key");
    if !key.exists() {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        release::output(keygen.arg(&key))?;
    }
    let request = release::Request {
        allow_dirty: true,
        key: Some(key),
        targets: Vec::new(),
    };
    release::Release::new(root, request)?.make()?;
    Ok(target.join("dist"))
}

/// The variable of the test harness for the number of tests that run at once.
const THREADS: &str = "RUST_TEST_THREADS";

/// Many tests wait for servers, limits of time and disks. One test for each core would leave the
/// cores idle.
const THREADS_PER_CORE: usize = 2;

fn heading(name: &str) {
    println!("\n=== {name}");
}

/// The results so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// One line per failure, for the summary.
    failures: Vec<String>,
    /// Whether a skip is a failure as well.
    strict: bool,
    /// Whether only the crates with changes are linted.
    is_quick: bool,
    /// Whether the slow tests run as well.
    is_full: bool,
    times: Times,
}

impl Tally {
    /// Runs a stage and notes its time.
    fn run_timed(
        &mut self,
        stage: &str,
        root: &Path,
        variables: &mut Vec<(&'static str, OsString)>,
    ) {
        let began = Instant::now();
        self.run(stage, root, variables);
        self.times.add_stage(stage, began.elapsed());
    }

    /// Prints the times, and writes them to the documents if wanted.
    fn show_times(&self, root: &Path, records: bool) -> Result<()> {
        let document = self.times.document();
        println!("\n{document}");
        if records {
            let file = root.join("docs/dev/test-times.md");
            fs::write(&file, document)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// Runs a stage.
    fn run(&mut self, stage: &str, root: &Path, variables: &mut Vec<(&'static str, OsString)>) {
        match stage {
            "format" => self.step(stage, &mut cargo(root, &["fmt", "--all", "--check"])),
            "check" => self.rules(root),
            "generate" => self.generated(root),
            "clippy" => self.clippy(root),
            "quick" => self.quick_tests(root, variables),
            "doc" => {
                let mut doc = cargo(root, &["doc", "--workspace", "--no-deps"]);
                self.step(stage, doc.env("RUSTDOCFLAGS", "-D warnings"));
            }
            // With the features of the stage `test`, so that it compiles nothing again. The stage
            // `dist` builds floe alone.
            "build" => self.step(
                stage,
                &mut cargo(root, &["test", "--workspace", "--no-run"]),
            ),
            "dist" => {
                let release = self.dist(root);
                variables.extend(release.map(|it| ("FLOE_TEST_DIST", it.into())));
            }
            "crates" => self.crates(root, stage, Verify::No),
            "test" => self.tests(root, variables),
            "instructions" => self.instructions(root),
            "models" => self.models(root),
            "aarch64" => self.emulated(root),
            "reproduced" => self.reproduced(root),
            "verified crates" => self.crates(root, stage, Verify::Yes),
            other => self.fail(format!("there is no stage {other}")),
        }
    }

    fn clippy(&mut self, root: &Path) {
        let mut clippy = cargo(root, &["clippy", "--all-targets"]);
        if self.is_quick {
            match quick::linted(root) {
                Ok(Linted::Crates(crates)) if crates.is_empty() => {
                    return self.count("clippy", Ok(()));
                }
                Ok(Linted::Crates(crates)) => {
                    clippy.args(crates.iter().flat_map(|name| ["--package", name]));
                }
                Ok(Linted::Workspace) => {
                    clippy.arg("--workspace");
                }
                Err(error) => return self.fail(format!("clippy: {error:#}")),
            }
        } else {
            clippy.arg("--workspace");
        }
        self.step("clippy", clippy.args(["--", "-D", "warnings"]));
    }

    /// Runs the unit tests, and an end-to-end test of each command.
    fn quick_tests(&mut self, root: &Path, variables: &[(&str, OsString)]) {
        let variables = variables.iter().map(|(name, value)| (name, value));
        let mut unit = cargo(root, &["test", "--workspace", "--lib", "--bins"]);
        self.tests_of("unit tests", unit.envs(variables.clone()));
        let arguments = ["test", "--package", "floe-cli", "--test", "it", "--"];
        let mut commands = cargo(root, &arguments);
        let names = quick::TESTS.iter().map(|(_, test)| test);
        commands.arg("--exact").args(names).envs(variables);
        let before = self.passed + self.failed;
        self.tests_of("commands", &mut commands);
        let ran = self.passed + self.failed - before;
        if ran != quick::TESTS.len() {
            self.fail(format!(
                "commands: {ran} tests ran; their list has {}",
                quick::TESTS.len()
            ));
        }
    }

    fn fail(&mut self, what: String) {
        self.failed += 1;
        self.failures.push(what);
    }

    fn skip(&mut self, what: String) {
        self.skipped += 1;
        if self.strict {
            self.fail(format!("skipped, which CI does not allow: {what}"));
        }
    }

    /// Counts a skip and prints it at once.
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

    /// Runs a command that succeeds or fails as a whole.
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

    /// Makes a release, for its tests. They sign it with a key of their own.
    fn dist(&mut self, root: &Path) -> Option<PathBuf> {
        heading("dist");
        let made = make_release(root).map_err(|error| format!("{error:#}"));
        let directory = made.as_ref().ok().cloned();
        self.count("dist", made.map(|_| ()));
        directory
    }

    /// Packages the public crates, without a warning.
    fn crates(&mut self, root: &Path, stage: &str, verify: Verify) {
        heading(stage);
        let packaged = package_crates(root, verify).map_err(|error| format!("{error:#}"));
        self.count(stage, packaged);
    }

    /// Runs the unit tests of the lowest crates for aarch64, under the emulator of qemu.
    fn emulated(&mut self, root: &Path) {
        let target = "aarch64-unknown-linux-gnu";
        let mut command = cargo(root, &["test", "--target", target, "--lib"]);
        command
            .args(["-p", "floe-format", "-p", "floe-hash", "-p", "floe-store"])
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
                "aarch64-linux-gnu-gcc",
            )
            .env("CC_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-gcc")
            // For the libraries of a dynamic program, qemu would replace the root directory by
            // another one, and the store opens its directories from there.
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
                "-C target-feature=+crt-static",
            )
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER",
                "qemu-aarch64-static",
            )
            // The emulator's statx tells no number of a mount.
            .args(["--", "--skip", "mounts_of_the_system_are_found"]);
        self.tests_of("aarch64", &mut command);
    }

    /// Builds the release once more, elsewhere, and compares it.
    fn reproduced(&mut self, root: &Path) {
        heading("reproduced");
        let compared = release::compare_with_second_build(root);
        self.count("reproduced", compared.map_err(|error| format!("{error:#}")));
    }

    /// Runs the tests of the workspace; each of them counts.
    fn tests(&mut self, root: &Path, variables: &[(&str, OsString)]) {
        let mut command = cargo(root, &["test", "--workspace", "--no-fail-fast"]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        let scratch = (!self.is_full).then(scratch::in_memory).flatten();
        if let Some(scratch) = &scratch {
            command.env(scratch::VARIABLE, scratch.path());
        }
        self.tests_of("test", &mut command);
    }

    /// Compares the instructions of the fixed workloads with the committed counts.
    fn instructions(&mut self, root: &Path) {
        heading("instructions");
        if let Some(missing) = instructions::missing_tool() {
            return self.skip_loudly(format!("reference tool {missing}"));
        }
        let checked = instructions::check(root, &[]).map_err(|error| format!("{error:#}"));
        self.count("instructions", checked);
    }

    /// Runs the tests of the queue under loom, which tries every order of events. They are built
    /// apart, with loom's atomics.
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

    /// Runs a command that runs test programs; each of their tests counts.
    pub(crate) fn tests_of(&mut self, name: &str, command: &mut Command) {
        heading(name);
        command.envs(program::runner());
        if env::var_os(THREADS).is_none() {
            let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            command.env(THREADS, (THREADS_PER_CORE * cores).to_string());
        }
        match run_tests(command) {
            Ok((seen, success)) => self.add(seen, success),
            Err(error) => self.fail(format!("test: {error:#}")),
        }
    }

    fn add(&mut self, seen: TestOutput, success: bool) {
        self.passed += seen.passed;
        self.failed += seen.failed;
        self.skipped += seen.ignored;
        self.times.add_tests(seen.times);
        let named = seen.names.len();
        self.failures
            .extend(seen.names.into_iter().map(|name| format!("test {name}")));
        for _ in named..seen.failed {
            self.failures.push("test: a failure without a name".into());
        }
        for _ in seen.ended..seen.begun {
            self.fail("test: a test program ended without a result".into());
        }
        if !success && seen.failed == 0 && seen.ended >= seen.begun {
            self.fail("test: cargo test failed outside the tests".into());
        }
    }

    /// Prints the failures and the last line.
    pub(crate) fn end(&self) -> Outcome {
        if !self.failures.is_empty() {
            println!("\nfailed:");
            self.failures.iter().for_each(|fault| println!("  {fault}"));
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
    fn results_of_test_programs_are_summed() {
        let mut tally = Tally::default();
        tally.add(seen(&format!("{GOOD}{BAD}")), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
        assert_eq!(tally.failures, ["test c::d"]);
    }

    #[test]
    fn crashed_test_program_is_a_failure() {
        let mut tally = Tally::default();
        tally.add(seen(&format!("{CRASHED}{GOOD}")), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn failed_build_without_failed_tests_is_a_failure() {
        let mut tally = Tally::default();
        tally.add(seen(GOOD), false);
        assert_eq!(tally.last_line(), "floe: 1 passed, 1 failed, 1 skipped");
        let mut tally = Tally::default();
        tally.add(seen(GOOD), true);
        assert_eq!(tally.last_line(), "floe: 1 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn skip_is_a_failure_in_ci_only() {
        for (strict, expected) in [
            (false, "floe: 0 passed, 0 failed, 1 skipped"),
            (true, "floe: 0 passed, 1 failed, 1 skipped"),
        ] {
            let mut tally = Tally {
                strict,
                ..Tally::default()
            };
            tally.skip("reference tool nginx: missing".into());
            assert_eq!(tally.last_line(), expected);
        }
    }

    #[test]
    fn step_that_fails_or_cannot_start_is_one_failure() {
        let mut tally = Tally::default();
        tally.step("good", &mut Command::new("true"));
        tally.step("bad", &mut Command::new("false"));
        tally.step("missing", &mut Command::new("no-such-command"));
        assert_eq!(tally.last_line(), "floe: 1 passed, 2 failed, 0 skipped");
        assert!(
            tally.failures[0].starts_with("bad: exit status: 1"),
            "{:?}",
            tally.failures
        );
    }
}
