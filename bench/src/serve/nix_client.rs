//! The work as a user sees it: `nix-store -r` of a closure into an empty store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use floe_bench::{Sample, machine, remove_tree};

use super::load::with_usage;
use super::workload::Workload;
use crate::nix;
use crate::server::Endpoint;

/// In memory, so that the disk is not measured.
const TMPFS: &str = "/dev/shm";

/// The name of a store there, before the id of the process that made it.
const STORE_PREFIX: &str = "floe-bench-";

/// The `nix-store` program.
pub(super) struct NixClient {
    nix_store: PathBuf,
    pub(super) version: String,
}

impl NixClient {
    /// The newest Nix.
    pub(super) fn find(root: &Path) -> Result<NixClient, String> {
        let bin = nix::newest(root).map_err(|error| format!("{error:#}"))?;
        let nix_store = bin.join("nix-store");
        remove_abandoned_stores();
        let version = machine::first_line(Command::new(&nix_store).arg("--version"));
        let version = version.ok_or_else(|| format!("{} does not run", nix_store.display()))?;
        Ok(NixClient { nix_store, version })
    }

    fn command(&self, workload: &Workload, store: &Path) -> Command {
        let mut command = workload.settings.command(self.nix_store.clone());
        command.arg("--store").arg(store);
        command
    }

    /// Realises the closure from a server, with an empty store and an empty home.
    pub(super) fn realise(&self, endpoint: &Endpoint, workload: &Workload) -> Result<Sample> {
        let parent = Path::new(TMPFS);
        ensure!(parent.is_dir(), "{TMPFS} does not exist");
        let store = parent.join(format!("{STORE_PREFIX}{}", std::process::id()));
        remove_tree(&store)?;
        remove_tree(&workload.settings.home())?;
        let sample = self.realise_into(&store, endpoint, workload);
        remove_tree(&store)?;
        sample
    }

    fn realise_into(
        &self,
        store: &Path,
        endpoint: &Endpoint,
        workload: &Workload,
    ) -> Result<Sample> {
        let mut command = self.command(workload, store);
        command
            .args(["-r", &workload.top, "--option", "substituters"])
            .arg(endpoint.origin.url())
            .args(["--option", "require-sigs", "true"])
            .args(["--option", "trusted-public-keys", &workload.public_key]);
        let (output, sample) = with_usage(endpoint, || {
            command.output().context("cannot start nix-store")
        })?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().last().unwrap_or_default();
        ensure!(output.status.success(), "nix-store -r: {last}");
        let valid = self
            .command(workload, store)
            .args(["--query", "--requisites", &workload.top])
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start nix-store")?;
        let valid = String::from_utf8_lossy(&valid.stdout).lines().count();
        let expected = workload.closure.len();
        ensure!(valid == expected, "{valid} paths are valid, not {expected}");
        Ok(sample)
    }
}

/// Removes the stores of killed runs, which would occupy memory.
fn remove_abandoned_stores() {
    for entry in fs::read_dir(TMPFS).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(STORE_PREFIX));
        let is_number = |pid: &&str| pid.parse::<u32>().is_ok();
        let is_abandoned = |pid: &str| !Path::new("/proc").join(pid).exists();
        if pid.filter(is_number).is_some_and(is_abandoned) {
            // A store of another user cannot be removed.
            let _ = remove_tree(&entry.path());
        }
    }
}
