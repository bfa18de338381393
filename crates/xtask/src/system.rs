//! The machine under the developer tool: who runs it, and which commands it has.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

/// Root is whoever owns the process's own entry in /proc.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

/// Where the command lies, if it is to be found.
pub fn find(command: &str) -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|dir| dir.join(command))
        .find(|path| path.is_file())
}

/// PATH, and where Debian keeps servers, which the PATH of an ordinary user leaves out.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let servers = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let all = env::split_paths(&path).chain(servers);
    // A PATH that holds no separator within a name came from a PATH, so joining cannot fail.
    env::join_paths(all).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_where_they_lie() {
        assert!(find("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find("a-command-that-nobody-has"), None);
    }
}
