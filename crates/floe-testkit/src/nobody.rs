//! Commands that run as the user `nobody`.

use std::process::Command;

use crate::{find_tool, skip};

/// The user and group id of `nobody`, which owns no files.
pub const NOBODY_UID: u32 = 65534;

/// Returns a `setpriv` command that runs the program of its further arguments as the user `nobody`.
/// Returns `None` if this process cannot switch to another user.
pub fn setpriv_to_nobody() -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skip("setpriv", "only root may switch to another user");
        return None;
    }
    let mut command = Command::new(find_tool("setpriv", "util-linux")?);
    let user = NOBODY_UID.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    Some(command)
}
