//! The work as a user sees it: `nix-store -r` of a closure into an empty store.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use floe_bench::machine;

use super::figures::Sample;
use super::load::with_usage;
use super::peers::Endpoint;
use super::workload::Workload;
use xtask::system;

/// Memory that looks like a disk, so that the disk is not what is measured.
const TMPFS: &str = "/dev/shm";

/// The name of a store there, before the number of the process that made it.
const STORE: &str = "floe-bench-";

/// The client.
pub(super) struct Nix {
    nix_store: PathBuf,
    pub(super) version: String,
}

impl Nix {
    /// The one that is named, else the newest that `cargo xtask test --full` unpacked, else the
    /// one that is installed.
    pub(super) fn find(root: &Path) -> Result<Nix, String> {
        let given = env::var_os("FLOE_BENCH_NIX").filter(|given| !given.is_empty());
        let nix_store = match given {
            Some(directory) => root.join(directory).join("bin/nix-store"),
            None => {
                let newest =
                    xtask::workspace::target_directory(root).join("newer-nix/bin/nix-store");
                let newest = Some(newest).filter(|program| program.is_file());
                newest
                    .or_else(|| system::find("nix-store"))
                    .ok_or("no nix-store; FLOE_BENCH_NIX names a directory with bin/nix-store")?
            }
        };
        remove_abandoned();
        let version = machine::first_line(Command::new(&nix_store).arg("--version"));
        let version = version.ok_or_else(|| format!("{} does not run", nix_store.display()))?;
        Ok(Nix { nix_store, version })
    }

    fn command(&self, work: &Workload, store: &Path) -> Command {
        let mut command = Command::new(&self.nix_store);
        work.configure(&mut command);
        command.arg("--store").arg(store);
        command
    }

    /// One run, with no memory of an earlier one.
    pub(super) fn realise(&self, site: &Endpoint, work: &Workload) -> Result<Sample> {
        let parent = Path::new(TMPFS);
        ensure!(parent.is_dir(), "needs {TMPFS} for the store");
        let store = parent.join(format!("{STORE}{}", std::process::id()));
        let known = work.nix_conf.join("cache");
        remove(&store)?;
        remove(&known)?;
        let mut command = self.command(work, &store);
        command
            .args(["-r", &work.top, "--option", "substituters"])
            .arg(site.origin.url())
            .args(["--option", "require-sigs", "true"])
            .args(["--option", "trusted-public-keys", &work.public_key]);
        let run = with_usage(site, || {
            let start = Instant::now();
            let output = command.output().context("starting nix-store")?;
            Ok((start.elapsed().as_secs_f64(), output))
        });
        let judged = run.and_then(|((seconds, output), sample)| {
            let words = String::from_utf8_lossy(&output.stderr);
            let last = words.lines().last().unwrap_or_default();
            ensure!(output.status.success(), "nix-store -r: {last}");
            let mut ask = self.command(work, &store);
            let valid = ask
                .args(["--query", "--requisites", &work.top])
                .stderr(Stdio::inherit())
                .output()
                .context("starting nix-store")?;
            let valid = String::from_utf8_lossy(&valid.stdout).lines().count();
            let expected = work.closure.len();
            ensure!(
                valid == expected,
                "{valid} paths became valid, not {expected}"
            );
            Ok(Sample {
                requests: 1,
                passes: 1,
                seconds,
                bytes: nar_bytes(work)?,
                ..sample
            })
        });
        remove(&store)?;
        judged
    }
}

fn nar_bytes(work: &Workload) -> Result<u64> {
    let mut sum = 0;
    for path in &work.closure {
        let narinfo = work.narinfo(path)?;
        let size: Option<u64> = narinfo.get("NarSize").and_then(|size| size.parse().ok());
        sum += size.with_context(|| format!("no NarSize of {path}"))?;
    }
    Ok(sum)
}

/// Memory is not freed by itself of what a run that was killed left there.
fn remove_abandoned() {
    for entry in fs::read_dir(TMPFS).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(STORE));
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            // It may be another user's.
            let _ = remove(&entry.path());
        }
    }
}

/// Directories of a store are read-only, which stops everybody but root.
fn remove(directory: &Path) -> Result<()> {
    if !directory.exists() {
        return Ok(());
    }
    if !system::is_root() {
        let _ = Command::new("chmod")
            .args(["-R", "u+w"])
            .arg(directory)
            .status();
    }
    fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))
}
