//! A CPU quota: a control group whose processes together get a part of one core.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A control group that is removed when this is dropped, after its processes have ended.
pub(super) struct CpuQuota {
    group: PathBuf,
}

/// The period of the quota in microseconds; this is the kernel's default.
const PERIOD: u64 = 100_000;

impl CpuQuota {
    /// Creates a group with `share` of one core, by control groups of version 1 or 2.
    ///
    /// Errors: this process is not root, or there are no writable control groups.
    pub(super) fn new(share: f64) -> Result<CpuQuota> {
        let quota = (share * PERIOD as f64) as u64;
        let name = format!("floe-bench-{}", std::process::id());
        let version1 = Path::new("/sys/fs/cgroup/cpu");
        let version2 = Path::new("/sys/fs/cgroup");
        let (group, file, text) = if version1.join("cpu.cfs_quota_us").exists() {
            (version1.join(name), "cpu.cfs_quota_us", quota.to_string())
        } else if version2.join("cgroup.controllers").exists() {
            (version2.join(name), "cpu.max", format!("{quota} {PERIOD}"))
        } else {
            bail!("there are no control groups for CPU time");
        };
        fs::create_dir(&group).with_context(|| format!("cannot create {}", group.display()))?;
        let created = CpuQuota { group };
        let file = created.group.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(created)
    }

    /// The command line that runs a command within the group.
    pub(super) fn wrap(&self, arguments: Vec<String>) -> Vec<String> {
        let procs = self.group.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        let mut wrapped = vec!["sh".into(), "-c".into(), script.into()];
        wrapped.push(procs.display().to_string());
        wrapped.extend(arguments);
        wrapped
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        // An empty group that cannot be removed does no harm.
        let _ = fs::remove_dir(&self.group);
    }
}
