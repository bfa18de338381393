//! Store directories on a read-only mount, as on NixOS.
//!
//! As root, floe makes such a mount writable in a mount namespace of its own. All other processes
//! keep seeing a read-only mount. Nix does the same.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::geteuid;

use crate::messages::copy;

/// Makes a store directory writable for this thread and the threads that it starts, if the
/// directory is on a read-only mount and the process runs as root.
///
/// A directory that does not exist yet needs nothing.
///
/// Errors: the process does not run as root, or the system refuses.
pub(crate) fn make_writable(store: &Path) -> Result<()> {
    let Ok(mounted) = statvfs(store) else {
        return Ok(());
    };
    if !mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Ok(());
    }
    if !geteuid().is_root() {
        bail!(copy::read_only_mount(store));
    }
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| anyhow!(copy::no_mount_namespace(store, error)))?;
    match mount_remount(store, writable_flags(mounted.f_flag), "") {
        // The directory is not a mount point: it lies on a file system that is mounted read-only as
        // a whole. Opening the store reports that.
        Err(Errno::INVAL) => return Ok(()),
        remounted => remounted.map_err(|error| anyhow!(copy::remount_failed(store, error)))?,
    }
    match statvfs(store) {
        Ok(mounted) if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            bail!(copy::read_only_file_system(store))
        }
        _ => Ok(()),
    }
}

/// Returns the flags of a mount without `ro`.
///
/// A remount clears every flag that it does not name, and a user namespace forbids that.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remount_keeps_all_flags_except_read_only() {
        use StatVfsMountFlags as Mounted;
        let mounted = Mounted::RDONLY | Mounted::NODEV | Mounted::NOSUID | Mounted::RELATIME;
        let kept = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RELATIME;
        assert_eq!(writable_flags(mounted), MountFlags::BIND | kept);
        assert_eq!(writable_flags(Mounted::RDONLY), MountFlags::BIND);
    }
}
