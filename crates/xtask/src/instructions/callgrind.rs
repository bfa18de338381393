//! Runs the workloads under callgrind, one on each core.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use xtask::system::find_command;

use crate::{cargo, release};

/// The package and the name of the program.
const PROGRAM: &str = "floe-workloads";

/// The function whose instructions count, as valgrind prints it: a hash may follow.
const COUNTED: &str = "floe_workloads::run_counted*";

/// The program with all workloads.
pub(super) struct Workloads {
    root: PathBuf,
    /// The directory of the program.
    directory: PathBuf,
    names: Vec<String>,
    compiler: String,
}

impl Workloads {
    /// Builds the program.
    pub(super) fn build(root: &Path) -> Result<Workloads> {
        // With the features of the tests of the workspace, which have built the dependencies.
        let build = ["test", "--workspace", "--test", "workloads", "--no-run"];
        let status = cargo(root, &build).status();
        let status = status.context("cannot start cargo")?;
        ensure!(status.success(), "cannot build {PROGRAM}: {status}");
        let directory = crate::target_directory(root).join("debug");
        let names = release::output(&mut Command::new(directory.join(PROGRAM)))?;
        let compiler = release::output(Command::new("rustc").arg("--version").current_dir(root))?;
        Ok(Workloads {
            root: root.to_owned(),
            directory,
            names: names.lines().map(str::to_owned).collect(),
            compiler: compiler.trim().to_owned(),
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|it| it == name)
    }

    /// The version of the Rust compiler.
    pub(super) fn compiler(&self) -> &str {
        &self.compiler
    }

    /// Returns the number of instructions of some workloads, or of all if `names` is empty.
    pub(super) fn count(&self, names: &[String]) -> Result<BTreeMap<String, u64>> {
        if let Some(unknown) = names.iter().find(|name| !self.has(name)) {
            bail!(
                "cannot run {unknown}: the workloads are {}",
                self.names.join(", ")
            );
        }
        let names = if names.is_empty() { &self.names } else { names };
        let directory = output_file(&self.root, "");
        let directory = directory.parent().unwrap_or(&self.root);
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(String, u64)>> {
            let mut counted = Vec::new();
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                counted.push((name.clone(), self.count_one(name)?));
            }
            Ok(counted)
        };
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let counted: Result<Vec<_>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let ended = workers.into_iter().map(thread::ScopedJoinHandle::join);
            ended
                .map(|it| it.unwrap_or_else(|_| Err(anyhow!("a worker panicked"))))
                .collect()
        });
        Ok(counted?.into_iter().flatten().collect())
    }

    fn count_one(&self, name: &str) -> Result<u64> {
        let output = output_file(&self.root, name);
        let valgrind = find_command("valgrind").context("there is no valgrind")?;
        let run = Command::new(valgrind)
            .args(["--tool=callgrind", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={COUNTED}"))
            .arg(format!("--callgrind-out-file={}", output.display()))
            // The arguments and the environment decide where the stack begins, and that changes
            // counts by a few thousandths.
            .args([&format!("./{PROGRAM}"), name])
            .env_clear()
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .output();
        let run = run.context("cannot start valgrind")?;
        let log = String::from_utf8_lossy(&run.stderr);
        ensure!(
            run.status.success(),
            "cannot run {name}: {}\n{log}",
            run.status
        );
        match collected(&log) {
            Some(0) => bail!("cannot count {name}: valgrind did not find the function {COUNTED}"),
            Some(count) => Ok(count),
            None => bail!("cannot count {name}: valgrind printed\n{log}"),
        }
    }
}

/// The file for the functions of a workload, which `callgrind_annotate` reads.
pub(super) fn output_file(root: &Path, workload: &str) -> PathBuf {
    let directory = crate::target_directory(root).join("instructions");
    directory.join(format!("{workload}.out"))
}

/// Returns the number of counted instructions that callgrind prints at its end.
fn collected(log: &str) -> Option<u64> {
    let mut values = log.lines().filter_map(|line| {
        let (_, value) = line.split_once("Collected :")?;
        value.trim().parse().ok()
    });
    values.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_that_of_the_last_summary() {
        let log = "==9528== Command: floe-workloads hash\n==9528== \n\
            ==9528== Events    : Ir\n==9528== Collected : 130684360\n==9528== \n\
            ==9528== I   refs:      130,684,360\n";
        assert_eq!(collected(log), Some(130_684_360));
        assert_eq!(
            collected("==1== Collected : 5\n==1== Collected : 0\n"),
            Some(0)
        );
    }

    #[test]
    fn log_without_summary_has_no_count() {
        for log in [
            "",
            "valgrind: failed to start tool 'callgrind'\n",
            "==1== Collected : \n",
            "==1== Collected : 5 6\n",
            "==1== Collected : 99999999999999999999\n",
        ] {
            assert_eq!(collected(log), None, "{log}");
        }
    }
}
