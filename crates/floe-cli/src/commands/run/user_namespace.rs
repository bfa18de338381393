//! The namespaces in which a store is mounted.

use std::fs;
use std::io;

use anyhow::{Error, Result, anyhow};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};

/// Gives this process mounts of its own. All mounts of the outside stay visible, and later ones
/// appear. Without the rights of root, the process also enters a user namespace, in which it keeps
/// its user and group.
///
/// Errors: the system refuses namespaces.
pub(super) fn enter() -> Result<()> {
    if !geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNS).is_err() {
        enter_user_namespace()?;
    }
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", propagation).map_err(|error| anyhow!(no_mounts(error)))
}

fn enter_user_namespace() -> Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(no_user_namespace)?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in maps {
        let file = format!("/proc/self/{file}");
        let written = fs::write(&file, text);
        written.map_err(|error| {
            anyhow!(
                "cannot mount the store: the system forbids user namespaces (cannot write {file}: \
                 {error}); {INSTEAD}"
            )
        })?;
    }
    Ok(())
}

fn no_user_namespace(error: nix::Error) -> Error {
    let fix = match remedy() {
        Some(command) => format!("allow them as root by {command:?}, {INSTEAD}"),
        None => INSTEAD.to_owned(),
    };
    // unshare(2): EPERM has this reason besides those of the system's settings.
    let cause = match error {
        nix::Error::EPERM if is_chroot() => "the kernel refuses user namespaces in a chroot",
        _ => "the system forbids user namespaces",
    };
    anyhow!("cannot mount the store: {cause} ({error}); {fix}")
}

/// Whether the root directory of this process is no mount point, as in most chroots.
fn is_chroot() -> bool {
    let root = statx(CWD, "/", AtFlags::empty(), StatxFlags::empty());
    root.is_ok_and(|root| {
        let known = root
            .stx_attributes_mask
            .contains(StatxAttributes::MOUNT_ROOT);
        known && !root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

fn no_mounts(error: Errno) -> String {
    match error {
        // The kernel changes mount points only.
        Errno::INVAL => "cannot mount the store: the root directory is not a mount point, as in a \
                         chroot; first mount the directory of the chroot onto itself (mount --bind \
                         DIR DIR), or install into /nix/store"
            .into(),
        _ => format!(
            "cannot mount the store: the system forbids mounts in a namespace ({error}); {INSTEAD}"
        ),
    }
}

/// The advice to users of a system that forbids mounts.
pub(super) const INSTEAD: &str = "run floe as root, or install into /nix/store";

/// Returns the command for root that allows user namespaces, if a setting forbids them.
fn remedy() -> Option<&'static str> {
    let settings = [
        (
            "user/max_user_namespaces",
            "0",
            "sysctl -w user.max_user_namespaces=10000",
        ),
        (
            "kernel/unprivileged_userns_clone",
            "0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let is_set = |name: &str, value: &str| {
        let text: io::Result<String> = fs::read_to_string(format!("/proc/sys/{name}"));
        text.is_ok_and(|text| text.trim() == value)
    };
    let found = settings
        .into_iter()
        .find(|(name, value, _)| is_set(name, value));
    found.map(|(_, _, command)| command)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn mounts_in_a_chroot() {
        expect![
            "cannot mount the store: the root directory is not a mount point, as in a chroot; first mount the directory of the chroot onto itself (mount --bind DIR DIR), or install into /nix/store"
        ]
        .assert_eq(&no_mounts(Errno::INVAL));
    }
}
