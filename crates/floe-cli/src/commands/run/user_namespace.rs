//! The namespaces in which a store is mounted.

use std::fs;
use std::io;

use anyhow::{Result, anyhow};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{getegid, geteuid};

use crate::messages::run as messages;

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
    mount_change("/", propagation).map_err(|error| anyhow!(messages::no_mounts(error)))
}

fn enter_user_namespace() -> Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS;
    unshare(flags).map_err(|error| anyhow!(messages::no_user_namespace(error, remedy())))?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in maps {
        let file = format!("/proc/self/{file}");
        let written = fs::write(&file, text);
        written.map_err(|error| anyhow!(messages::no_user_map(&file, error)))?;
    }
    Ok(())
}

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
