//! `cargo xtask sanitize`: the unsafe code, watched while its tests run.
//!
//! AddressSanitizer sees memory that is used beside its bounds or after its end, or never given
//! back; ThreadSanitizer sees accesses that nothing orders; Miri sees what the language forbids
//! though a processor would do it. All of them take a nightly toolchain and many minutes, so
//! `cargo xtask test` does not run them.

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
    // What lacks a reference tool is named as in `cargo xtask test`.
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

/// Variables that tests get.
type Variables = [(&'static str, OsString)];

/// One program that watches.
struct Sanitizer {
    name: &'static str,
    /// What the nightly toolchain needs besides the compiler.
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
        // The standard library has to be watched as well: to accesses that it orders unseen, every
        // use of a channel or a mutex would look like a race.
        component: Some("rust-src"),
        run: thread,
    },
    Sanitizer {
        name: "miri",
        component: Some("miri"),
        run: miri,
    },
];

/// Where a sanitizer works.
struct SanitizerBuild<'a> {
    root: &'a Path,
    sanitizer: &'a Sanitizer,
}

impl SanitizerBuild<'_> {
    /// A cargo of the nightly toolchain, whose output is kept apart from all other.
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

    /// The same for a sanitizer of rustc's.
    fn sanitizing_cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.cargo(arguments);
        command
            .args(["--target", TARGET])
            .env("RUSTFLAGS", format!("-Zsanitizer={}", self.sanitizer.name))
            // Else the C compiler is told to do the same for SQLite and its like: by other code
            // than rustc's, and AddressSanitizer took a quarter of an hour for SQLite.
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
            "{test}: gcc's ThreadSanitizer lacks functions of rustc's"
        ));
    }
    sanitized(watched, LINKED, variables, tally);
}

/// The tests but some, and then many threads that submit at once. Programs in C and C++ that the
/// tests build are watched as well.
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
    // Built as the tests are, which spares a second build; each run asserts its own counts.
    let mut submit = watched(SUBMIT);
    submit.arg("--").args(STRESS);
    tally.step("sanitized submit", &mut submit);
}

fn miri(build: &SanitizerBuild<'_>, _: &Variables, tally: &mut Tally) {
    let mut tests = build.cargo(&["miri", "test", "--no-fail-fast"]);
    tests.args(["--package", "floe-queue", "--package", "floe-messages"]);
    tests.args(["--lib", "--tests"]);
    // Tests look at the time, and read the corpus of the fuzz targets.
    tests.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    tests.env("PROPTEST_CASES", "8");
    tally.tests_of("tests in miri", &mut tests);
}

/// Says how to get what is missing, instead of an error of cargo's that does not.
fn require(component: Option<&str>) -> Result<()> {
    let mut list = Command::new("rustup");
    list.args(["component", "list", "--installed", "--toolchain", NIGHTLY]);
    let output = list
        .stdin(Stdio::null())
        .output()
        .context("starting rustup, which chooses the nightly toolchain")?;
    if !output.status.success() {
        bail!("there is no nightly toolchain; run: rustup toolchain install {NIGHTLY}");
    }
    let installed = String::from_utf8_lossy(&output.stdout);
    if let Some(component) = component
        && !installed.lines().any(|line| line.starts_with(component))
    {
        bail!(
            "the nightly toolchain has no {component}; \
             run: rustup component add --toolchain {NIGHTLY} {component}"
        );
    }
    Ok(())
}

const NIGHTLY: &str = "nightly";

/// Named even on such a machine: only then are build scripts and macros of the compiler spared.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Those with unsafe code of ours, and the messages that go through it.
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

/// Enough to fill lanes and to end them, with several threads for each processor.
const STRESS: &[&str] = &[
    "--threads",
    "1,2,8",
    "--per-thread",
    "2000",
    "--iters",
    "1",
    "--no-gate",
];

/// Tests of programs that a C compiler links with libfloe, and so with its own runtime. That of
/// gcc 12 for AddressSanitizer serves what rustc has put into the library; that for
/// ThreadSanitizer has no `__tsan_memcpy`.
const LINKED: &[&str] = &[
    "languages::the_example_in_c_installs_a_closure_that_nix_accepts",
    "languages::the_example_in_c_works_with_the_static_library",
    "languages::pkg_config_knows_how_to_build_against_the_library",
    "languages::the_example_in_cpp_installs_a_closure_that_nix_accepts",
    "languages::what_the_layer_for_cpp_promises_holds",
];
