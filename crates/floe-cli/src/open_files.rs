//! The limit of open files of this process.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard limit, and returns the new limit. `None` means
/// no limit.
///
/// The low default of the soft limit exists for programs that use select(2), which floe does not.
pub(crate) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    // Only the first one is that of the parent.
    let _: Result<(), _> = PARENTS.set(limit);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Gives the process the limit of its parent again, for a program that takes its place.
pub(crate) fn restore() {
    if let Some(limit) = PARENTS.get() {
        // A lower soft limit is always allowed.
        let _: Result<(), _> = setrlimit(Resource::Nofile, *limit);
    }
}

static PARENTS: OnceLock<Rlimit> = OnceLock::new();

/// Returns the number of connections to one host that fits into the limit of open files. The other
/// files are those of the workers, of the databases and of the path locks.
pub(crate) fn limit_connections(connections: usize, open_files: Option<u64>) -> usize {
    let share = open_files.map_or(u64::MAX, |files| files / CONNECTIONS_SHARE);
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    connections.min(share.max(1))
}

/// The connections to one host get one part of this many parts of all files. They stay open while
/// they are idle, and a copy often has several caches.
const CONNECTIONS_SHARE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_a_share_of_the_open_files() {
        assert_eq!(limit_connections(25, Some(64)), 16);
        assert_eq!(limit_connections(25, Some(1024)), 25);
        assert_eq!(limit_connections(512, Some(1024)), 256);
        assert_eq!(limit_connections(25, Some(2)), 1);
        assert_eq!(limit_connections(512, None), 512);
    }
}
