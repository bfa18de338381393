//! The texts of `floe serve`, and those that `nix-serve` shares with it.

use std::fmt::Display;
use std::path::Path;

// Files

pub(crate) fn compressed_cache(dir: &Path) -> String {
    format!("cannot use the compressed NAR cache {}", dir.display())
}

pub(crate) fn uploads(dir: &Path) -> String {
    format!("cannot receive uploads into {}", dir.display())
}

pub(crate) const TLS_PAIRS: &str =
    "cannot use TLS: certificates and keys do not match; give --tls-cert and --tls-key in pairs";

pub(crate) const CLIENT_CA_ALONE: &str = "cannot demand certificates of clients: the server has no \
     TLS; give --tls-cert and --tls-key too";

pub(crate) const RECEIVE_WITHOUT_LOGINS: &str = "cannot receive uploads: the server has no logins, \
     so that everyone could write; add --auth-file FILE, and a login with --scope push";

pub(crate) const PASSED_SOCKETS: &str = "cannot take the sockets of systemd";

// Process

pub(crate) fn listening(url: impl Display) -> String {
    format!("listening on {url}")
}

pub(crate) const ONLY_THIS_MACHINE: &str =
    "only programs on this machine can connect; --listen '*:PORT', or --host '*', lets others too";

pub(crate) fn redirecting(url: impl Display) -> String {
    format!("redirecting to HTTPS on {url}")
}

pub(crate) fn serving_metrics(url: impl Display) -> String {
    format!("serving metrics on {url}")
}

pub(crate) const STOPPED: &str = "the server has ended";

/// `changed` are the keys of settings with new values.
pub(crate) fn reloaded(changed: &[&str]) -> String {
    let mut text = "reloaded certificates, keys and logins".to_owned();
    if !changed.is_empty() {
        text += &format!("; changed {}", changed.join(", "));
    }
    text
}

pub(crate) fn needs_restart(keys: &[&str]) -> String {
    format!(
        "cannot change {} while the server runs; restart it",
        keys.join(", ")
    )
}

pub(crate) fn reload_failed(cause: impl Display) -> String {
    format!("{cause}; keeping the earlier settings, certificates, keys and logins")
}

pub(crate) fn open_files(limit: u64, needed: u64) -> String {
    format!(
        "cannot start the server: it needs {needed} open files, but the limit is {limit}; raise it \
         with ulimit -n or LimitNOFILE, or use fewer --threads"
    )
}

pub(crate) const DEV_NULL: &str = "cannot open /dev/null";
pub(crate) const TERMINAL: &str = "cannot detach from the terminal";
pub(crate) const SIGNAL_HANDLERS: &str = "cannot install signal handlers";
pub(crate) const STDERR: &str = "cannot redirect stderr to the error log";

pub(crate) fn log_file(log: &str, file: &Path) -> String {
    format!("cannot open the {log} {}", file.display())
}

pub(crate) fn pid_file(path: &Path) -> String {
    format!("cannot write the PID file {}", path.display())
}

pub(crate) fn pid_file_in_use(path: &Path, pid: u32) -> String {
    format!("{}: process {pid} is running already", pid_file(path))
}

pub(crate) fn pid_file_left(path: &Path, cause: impl Display) -> String {
    format!("leaving the PID file {} behind: {cause}", path.display())
}

// --user and --group

pub(crate) fn user_lookup(user: &str) -> String {
    format!("cannot look up the user {user}")
}

pub(crate) fn group_lookup(group: &str) -> String {
    format!("cannot look up the group {group}")
}

pub(crate) fn no_such_user(user: &str) -> String {
    format!("cannot use --user {user}: there is no such user")
}

pub(crate) fn no_such_group(group: &str) -> String {
    format!("cannot use --group {group}: there is no such group")
}

pub(crate) fn user_change(user: &str) -> String {
    format!("cannot change to the user {user}")
}

pub(crate) fn group_change(group: impl Display) -> String {
    format!("cannot change to the group {group}")
}

pub(crate) fn user_change_is_reversible(user: &str) -> String {
    format!("{}: the process could still become root", user_change(user))
}
