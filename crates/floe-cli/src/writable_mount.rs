//! Store directories on a read-only mount, as on NixOS.
//!
//! As root, floe makes such a mount writable in a mount namespace of its own. All other processes
//! keep seeing a read-only mount. Nix does the same.

use std::fmt::Display;
use std::path::Path;

use anyhow::{Error, Result, anyhow, bail};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount_remount};
use rustix::process::geteuid;

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
        bail!(read_only_mount(store));
    }
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| {
        cannot_remount(store, format!("floe gets no mounts of its own ({error})"))
    })?;
    match mount_remount(store, writable_flags(mounted.f_flag), "") {
        // The directory is not a mount point: it lies on a file system that is mounted read-only as
        // a whole. Opening the store reports that.
        Err(Errno::INVAL) => return Ok(()),
        remounted => remounted.map_err(|error| {
            cannot_remount(store, format!("the mount stays read-only ({error})"))
        })?,
    }
    match statvfs(store) {
        Ok(mounted) if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            Err(cannot_remount(store, "its file system is read-only"))
        }
        _ => Ok(()),
    }
}

fn read_only_mount(store: &Path) -> String {
    format!(
        "cannot write to the store directory {}: it is mounted read-only; run floe as root \
         (sudo floe …), which makes it writable for floe only, or use another store with --root \
         DIR",
        store.display()
    )
}

fn cannot_remount(store: &Path, cause: impl Display) -> Error {
    anyhow!(
        "cannot make the store directory {} writable: {cause}; mount it writable first, or use \
         another store with --root DIR",
        store.display()
    )
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
    fn read_only_mount_is_refused() {
        expect_test::expect![
            "cannot write to the store directory /nix/store: it is mounted read-only; run floe as root (sudo floe …), which makes it writable for floe only, or use another store with --root DIR"
        ]
        .assert_eq(&read_only_mount(Path::new("/nix/store")));
    }

    #[test]
    fn remount_keeps_all_flags_except_read_only() {
        use StatVfsMountFlags as Mounted;
        let mounted = Mounted::RDONLY | Mounted::NODEV | Mounted::NOSUID | Mounted::RELATIME;
        let kept = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::RELATIME;
        assert_eq!(writable_flags(mounted), MountFlags::BIND | kept);
        assert_eq!(writable_flags(Mounted::RDONLY), MountFlags::BIND);
    }
}
