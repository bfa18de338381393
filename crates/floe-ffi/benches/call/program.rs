//! The C++ program: its build and its output.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program, in a temporary directory.
#[derive(Debug)]
pub(crate) struct Program {
    directory: tempfile::TempDir,
}

/// The result of one case with one number of threads.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) case: String,
    pub(crate) threads: usize,
    /// Messages per second.
    pub(crate) rate: f64,
    /// The median time of single calls in µs.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// How often a thread got `FLOE_BUSY`.
    pub(crate) busy: f64,
}

impl Program {
    /// Builds the library if necessary, and the program against it.
    pub(crate) fn build() -> Result<Program, String> {
        let library = library()?;
        let directory =
            tempfile::tempdir().map_err(|error| format!("cannot create a directory: {error}"))?;
        // The program looks for the soname, but cargo names the library differently.
        let soname = directory.path().join("libfloe.so.1");
        std::os::unix::fs::symlink(&library, &soname)
            .map_err(|error| format!("cannot link {}: {error}", soname.display()))?;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut compiler = Command::new("c++");
        compiler
            .args(["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror"])
            .arg("-I")
            .arg(here.join("include"))
            .arg("-I")
            .arg(here.join("../../bindings/cpp"))
            .arg(here.join("benches/call/call.cpp"))
            .arg("-o")
            .arg(directory.path().join("call"))
            .arg(&library)
            .arg("-pthread")
            .arg(format!("-Wl,-rpath,{}", directory.path().display()));
        run(&mut compiler, "install a C++ compiler as `c++`")?;
        Ok(Program { directory })
    }

    /// Measures these cases in this order, each with these numbers of threads.
    pub(crate) fn run(
        &self,
        each: u64,
        threads: &[usize],
        cases: &[&str],
    ) -> Result<Vec<Row>, String> {
        let counts: Vec<String> = threads.iter().map(usize::to_string).collect();
        let output = Command::new(self.directory.path().join("call"))
            .arg(each.to_string())
            .arg(counts.join(","))
            .args(cases)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start call.cpp: {error}"))?;
        if !output.status.success() {
            return Err(match output.status.code() {
                Some(2) => "call.cpp: a reply is wrong or missing".into(),
                _ => format!(
                    "call.cpp ended with {}; signal 14 means that it hung",
                    output.status
                ),
            });
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let rows: Option<Vec<Row>> = text.lines().map(row).collect();
        match rows {
            Some(rows) if rows.len() == threads.len() * cases.len() => Ok(rows),
            _ => Err(format!("call.cpp printed unexpected rows:\n{text}")),
        }
    }
}

/// Parses `case,threads,rate,p50,p99,busy`.
fn row(line: &str) -> Option<Row> {
    let mut fields = line.split(',');
    let row = Row {
        case: fields.next()?.to_owned(),
        threads: fields.next()?.parse().ok()?,
        rate: fields.next()?.parse().ok()?,
        p50: fields.next()?.parse().ok()?,
        p99: fields.next()?.parse().ok()?,
        busy: fields.next()?.parse().ok()?,
    };
    fields.next().is_none().then_some(row)
}

/// Returns the shared library that belongs to this executable.
///
/// `cargo bench` links this executable after the crate that it measures. It leaves the shared
/// library where `cargo build` last put it, or nowhere. A library that is newer than the executable
/// is up to date.
fn library() -> Result<PathBuf, String> {
    let own =
        env::current_exe().map_err(|error| format!("cannot find this executable: {error}"))?;
    let deps = own
        .parent()
        .filter(|it| it.file_name() == Some(OsStr::new("deps")));
    let release = deps
        .and_then(Path::parent)
        .filter(|it| it.file_name() == Some(OsStr::new("release")));
    let Some(release) = release else {
        return Err(format!(
            "{} is not in release/deps; run `cargo bench -p floe-ffi --bench call`",
            own.display()
        ));
    };
    let library = release.join("libfloe.so");
    let age = |path: &Path| path.metadata().and_then(|it| it.modified()).ok();
    let state = match age(&library) {
        None => "missing",
        Some(built) if Some(built) < age(&own) => "older than this benchmark",
        Some(_) => return Ok(library),
    };
    eprintln!(
        "{} is {state}: cargo build --release -p floe-ffi",
        library.display()
    );
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "-p", "floe-ffi", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .arg("--target-dir")
        .arg(release.parent().unwrap_or(release));
    // Variables that cargo sets for this benchmark must not reach another cargo. The build script
    // of ring reads them, and with other values most of the workspace would be rebuilt, here and by
    // the next call of cargo.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if CARGOS_OWN.iter().any(|own| text.starts_with(own)) {
            cargo.env_remove(&name);
        }
    }
    run(&mut cargo, "build it manually to see the error")?;
    if library.exists() {
        Ok(library)
    } else {
        Err(format!("cargo did not build {}", library.display()))
    }
}

/// Runs a command whose output the user should see.
fn run(command: &mut Command, advice: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name} ended with {status}; {advice}")),
        Err(error) => Err(format!("cannot start {name}: {error}; {advice}")),
    }
}

/// Prefixes of the variables that cargo sets for its children. Other `CARGO_` variables are
/// settings of the user and stay.
const CARGOS_OWN: [&str; 6] = [
    "CARGO_BIN_",
    "CARGO_CRATE_NAME",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PRIMARY_PACKAGE",
    "OUT_DIR",
];
