//! `cargo xtask sanitize`: runs the tests of the crates with unsafe code under sanitizers.
//!
//! AddressSanitizer finds accesses out of bounds or after free, and leaks. ThreadSanitizer finds
//! data races. Miri finds undefined behaviour that a processor would hide. They need a nightly
//! toolchain and many minutes, so `cargo xtask test` does not run them.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::test::Tally;
use crate::{Outcome, reference_tools, target_directory};

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let which = match arguments {
        [] => "all",
        [which] => which,
        _ => "",
    };
    let sanitizers: Vec<&Sanitizer> = SANITIZERS
        .iter()
        .filter(|sanitizer| which == "all" || which == sanitizer.name)
        .collect();
    if sanitizers.is_empty() {
        return Ok(Outcome::Usage(format!(
            "sanitize takes address, thread, miri or all, not {arguments:?}"
        )));
    }
    for sanitizer in &sanitizers {
        require(sanitizer.component)?;
    }
    let reference_tools = reference_tools::prepare(root, false)?;
    let mut tally = Tally::default();
    for missing in &reference_tools.missing {
        tally.skip_loudly(format!("reference tool {missing}"));
    }
    for sanitizer in sanitizers {
        (sanitizer.run)(
            &SanitizerBuild { root, sanitizer },
            &reference_tools.variables,
            &mut tally,
        );
    }
    for skip in reference_tools::skips_of_tests(&reference_tools.skips_file)? {
        tally.skip_loudly(skip);
    }
    Ok(tally.end())
}

/// Environment variables for the tests.
type Variables = [(&'static str, OsString)];

/// A sanitizer.
struct Sanitizer {
    name: &'static str,
    /// The component that the nightly toolchain needs besides the compiler.
    component: Option<&'static str>,
    run: fn(&SanitizerBuild<'_>, &Variables, &mut Tally),
}

const SANITIZERS: &[Sanitizer] = &[
    Sanitizer {
        name: "address",
        component: None,
        run: address,
    },
    Sanitizer {
        name: "thread",
        // The standard library must be built with the sanitizer too. Otherwise every use of a
        // channel or a mutex looks like a race.
        component: Some("rust-src"),
        run: thread,
    },
    Sanitizer {
        name: "miri",
        component: Some("miri"),
        run: miri,
    },
];

/// The build of the repository with a sanitizer.
struct SanitizerBuild<'a> {
    root: &'a Path,
    sanitizer: &'a Sanitizer,
}

impl SanitizerBuild<'_> {
    /// A cargo of the nightly toolchain with a target directory of its own.
    fn cargo(&self, arguments: &[&str]) -> Command {
        let directory = format!("sanitize-{}", self.sanitizer.name);
        let mut command = Command::new("rustup");
        command
            .args(["run", NIGHTLY, "cargo"])
            .args(arguments)
            .current_dir(self.root)
            .env(
                "CARGO_TARGET_DIR",
                target_directory(self.root).join(directory),
            )
            .stdin(Stdio::null());
        command
    }

    /// The same with a sanitizer of rustc.
    fn sanitizing_cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.cargo(arguments);
        command
            .args(["--target", TARGET])
            .env("RUSTFLAGS", format!("-Zsanitizer={}", self.sanitizer.name))
            // Without this, the cc crate passes the option to the C compiler, whose runtime differs
            // from rustc's. AddressSanitizer took a quarter of an hour for SQLite.
            .env("CFLAGS", "-fno-sanitize=all");
        command
    }
}

fn address(build: &SanitizerBuild<'_>, variables: &Variables, tally: &mut Tally) {
    let options = "detect_leaks=1:halt_on_error=1:abort_on_error=1:strict_string_checks=1";
    let flags = "-fsanitize=address,undefined -fno-sanitize-recover=undefined";
    let watched = |arguments: &[&str]| {
        let mut command = build.sanitizing_cargo(arguments);
        command.env("ASAN_OPTIONS", options);
        command.env("FLOE_TEST_CFLAGS", flags);
        command
    };
    sanitized(watched, &[], variables, tally);
}

fn thread(build: &SanitizerBuild<'_>, variables: &Variables, tally: &mut Tally) {
    let watched = |arguments: &[&str]| {
        let mut command = build.sanitizing_cargo(arguments);
        command.arg("-Zbuild-std");
        command.env("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1");
        command.env("FLOE_TEST_CFLAGS", "-fsanitize=thread");
        command
    };
    for test in LINKED {
        tally.skip_loudly(format!(
            "{test}: the ThreadSanitizer runtime of gcc lacks functions that rustc needs"
        ));
    }
    sanitized(watched, LINKED, variables, tally);
}

/// Runs the tests except for `skipped`, and then the benchmark of submitting threads as a stress
/// test. Programs in C and C++ that the tests build run under the sanitizer too.
fn sanitized(
    watched: impl Fn(&[&str]) -> Command,
    skipped: &[&str],
    variables: &Variables,
    tally: &mut Tally,
) {
    let mut tests = watched(&[&["test", "--lib", "--tests", "--no-fail-fast"], CRATES].concat());
    tests.envs(variables.iter().map(|(name, value)| (name, value)));
    tests.args(["--", "--exact"]);
    skipped.iter().for_each(|test| {
        tests.args(["--skip", test]);
    });
    tally.tests_of("sanitized tests", &mut tests);
    // The dev profile reuses the build of the tests. Each run asserts its own counts.
    let mut submit = watched(SUBMIT);
    submit.arg("--").args(STRESS);
    tally.step("sanitized submit", &mut submit);
}

fn miri(build: &SanitizerBuild<'_>, _: &Variables, tally: &mut Tally) {
    let mut tests = build.cargo(&["miri", "test", "--no-fail-fast"]);
    tests.args(["--package", "floe-queue", "--package", "floe-messages"]);
    tests.args(["--lib", "--tests"]);
    // Tests read the clock and the corpus of the fuzz targets.
    tests.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    tests.env("PROPTEST_CASES", "8");
    tally.tests_of("tests in miri", &mut tests);
}

/// Checks the nightly toolchain, because cargo's own error does not say how to install it.
fn require(component: Option<&str>) -> Result<()> {
    let mut list = Command::new("rustup");
    list.args(["component", "list", "--installed", "--toolchain", NIGHTLY]);
    let output = list
        .stdin(Stdio::null())
        .output()
        .context("cannot start rustup, which selects the nightly toolchain")?;
    if !output.status.success() {
        bail!("there is no nightly toolchain; run rustup toolchain install {NIGHTLY}");
    }
    let installed = String::from_utf8_lossy(&output.stdout);
    if let Some(component) = component
        && !installed.lines().any(|line| line.starts_with(component))
    {
        bail!(
            "the nightly toolchain has no {component}; \
             run rustup component add --toolchain {NIGHTLY} {component}"
        );
    }
    Ok(())
}

const NIGHTLY: &str = "nightly";

/// Given even on such a machine: with a target, cargo builds build scripts and macros without the
/// sanitizer.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The crates with unsafe code.
const CRATES: &[&str] = &[
    "--package",
    "floe-queue",
    "--package",
    "floe-messages",
    "--package",
    "floe-ffi",
];

const SUBMIT: &[&str] = &[
    "bench",
    "--profile",
    "dev",
    "--package",
    "floe-ffi",
    "--bench",
    "submit",
];

/// Enough to fill and to close queues, with several threads per processor.
const STRESS: &[&str] = &[
    "--threads",
    "1,2,8",
    "--per-thread",
    "2000",
    "--iters",
    "1",
    "--no-gate",
];

/// Tests of programs that a C compiler links with libfloe and with its own sanitizer runtime. The
/// AddressSanitizer runtime of gcc 12 works with the code of rustc. Its ThreadSanitizer runtime
/// lacks `__tsan_memcpy`.
const LINKED: &[&str] = &[
    "languages::c_example_installs_closure_valid_for_nix",
    "languages::c_example_works_with_static_library",
    "languages::pkg_config_flags_build_a_program",
    "languages::cpp_example_installs_closure_valid_for_nix",
    "languages::cpp_layer_keeps_its_contract",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A renamed test would run under ThreadSanitizer and fail.
    #[test]
    fn linked_tests_exist() {
        let root = crate::root().unwrap();
        let file = root.join("crates/floe-ffi/tests/it/languages.rs");
        let text = std::fs::read_to_string(file).unwrap();
        for test in LINKED {
            let name = test.strip_prefix("languages::").unwrap();
            assert!(text.contains(&format!("fn {name}()")), "{test}");
        }
    }
}
