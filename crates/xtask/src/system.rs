//! The machine that the developer tools run on: its commands, its user, and its environment.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

/// Whether this process runs as root, by the owner of its entry in /proc.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

/// An environment variable; `None` if it is empty.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The path of a command in the [`search_path`].
pub fn find_command(command: &str) -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|dir| dir.join(command))
        .find(|path| path.is_file())
}

/// PATH, and Debian's directories for servers, which the PATH of an ordinary user lacks.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let all = env::split_paths(&path).chain(servers);
    // Names that were split at separators contain none, so joining cannot fail.
    env::join_paths(all).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_command_searches_the_path() {
        assert!(find_command("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find_command("no-such-command"), None);
    }
}
