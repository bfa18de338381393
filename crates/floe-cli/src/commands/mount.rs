//! A store directory that is mounted read-only, as NixOS has it: root writes to it all the same, as
//! with Nix, in a private view of the mounts. For everybody else it stays as it is.

use std::path::Path;

use anyhow::{Context as _, Result};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::geteuid;

/// Makes a store directory writable for this thread and those that it starts, where a read-only
/// mount is in the way and this is root. A store that is not there yet needs nothing.
///
/// Errors: what the system says, with what can be done instead.
pub(crate) fn make_writable(store: &Path) -> Result<()> {
    let Ok(mounted) = statvfs(store) else {
        return Ok(());
    };
    if !mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    let shown = store.display();
    if !geteuid().is_root() {
        anyhow::bail!(
            "the store directory {shown} is mounted read-only; run floe as root (sudo floe …), \
             which makes it writable for itself alone, or use a store of your own with --root DIR"
        );
    }
    unshare(CloneFlags::CLONE_NEWNS)
        .with_context(|| format!("leaving the mounts of others alone, to write to {shown}"))
        .context(ADVICE)?;
    match mount_remount(store, writable_flags(mounted.f_flag), "") {
        // No mount of its own, but a directory on what is read-only as a whole: whoever opens the
        // store says so, as of all that cannot be written.
        Err(Errno::INVAL) => return Ok(()),
        remounted => remounted
            .with_context(|| {
                format!("making the read-only mount of {shown} writable for floe alone")
            })
            .context(ADVICE)?,
    }
    match statvfs(store) {
        Ok(mounted) if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            anyhow::bail!("the file system of {shown} itself is read-only; {ADVICE}")
        }
        _ => Ok(()),
    }
}

/// Those of the mount as it is, without `ro`. What is left out would be taken away, which a user
/// namespace does not allow.
fn writable_flags(mounted: StatVfsMountFlags) -> MountFlags {
    let kept = [
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
    ];
    let kept = kept.into_iter().filter(|(flag, _)| mounted.contains(*flag));
    kept.fold(MountFlags::BIND, |all, (_, flag)| all | flag)
}

/// What is left to do where the system does not allow it.
const ADVICE: &str = "mount the store writable first, or use another one with --root DIR";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_flags_of_a_mount_are_kept_but_that_it_is_read_only() {
        use StatVfsMountFlags as Mounted;
        let mounted = Mounted::RDONLY | Mounted::NODEV | Mounted::NOSUID | Mounted::RELATIME;
        let kept = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RELATIME;
        assert_eq!(writable_flags(mounted), MountFlags::BIND | kept);
        assert_eq!(writable_flags(Mounted::RDONLY), MountFlags::BIND);
    }
}
