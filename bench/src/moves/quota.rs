//! A part of a core: a control group whose processes together get no more.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Removed when dropped; by then its processes have ended.
pub(super) struct Quota {
    group: PathBuf,
}

/// How long a period of the quota is, in microseconds: the default of the kernel.
const PERIOD: u64 = 100_000;

impl Quota {
    /// A group that gets `share` of one core.
    ///
    /// Errors: not root, or no control groups to write to.
    pub(super) fn new(share: f64) -> Result<Quota> {
        let quota = (share * PERIOD as f64) as u64;
        let name = format!("floe-bench-{}", std::process::id());
        let old = Path::new("/sys/fs/cgroup/cpu");
        let new = Path::new("/sys/fs/cgroup");
        let (group, file, text) = if old.join("cpu.cfs_quota_us").exists() {
            (old.join(name), "cpu.cfs_quota_us", quota.to_string())
        } else if new.join("cgroup.controllers").exists() {
            (new.join(name), "cpu.max", format!("{quota} {PERIOD}"))
        } else {
            bail!("there are no control groups for CPU time");
        };
        fs::create_dir(&group).with_context(|| format!("making {}", group.display()))?;
        let made = Quota { group };
        let file = made.group.join(file);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(made)
    }

    /// The command, run within the group.
    pub(super) fn wrap(&self, words: Vec<String>) -> Vec<String> {
        let procs = self.group.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let mut wrapped = vec!["sh".into(), "-c".into(), script.into()];
        wrapped.push(procs.display().to_string());
        wrapped.extend(words);
        wrapped
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // What is left of an empty group is a name.
        let _ = fs::remove_dir(&self.group);
    }
}
