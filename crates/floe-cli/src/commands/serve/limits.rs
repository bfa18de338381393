//! How many files this process may have open, and so how many connections.

use floe_server::config::CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, and gives the limit that then holds;
/// `None` is no limit. A server that selects no descriptor sets needs no low limit.
pub(crate) fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// How many connections fit under a limit of open files.
pub(crate) fn connections(asked: Option<usize>, open_files: Option<u64>) -> usize {
    let fit = open_files.map_or(usize::MAX, |files| {
        let own = FILES_OF_THE_SERVER.min(files / 2);
        let free = files.saturating_sub(own) / FILES_PER_CONNECTION;
        usize::try_from(free).unwrap_or(usize::MAX).max(1)
    });
    asked.unwrap_or(CONNECTIONS_MAX).min(fit)
}

/// A connection has its socket, and the root, the directory and the file that it sends.
const FILES_PER_CONNECTION: u64 = 4;

/// Packed NARs (256 at most), the database with its companions on each thread, standard streams,
/// logs, listening sockets.
const FILES_OF_THE_SERVER: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_exceed_what_the_open_files_allow() {
        assert_eq!(connections(None, Some(1024)), 128);
        assert_eq!(connections(Some(10_000), Some(1024)), 128);
        assert_eq!(connections(Some(10), Some(1024)), 10);
        assert_eq!(connections(None, None), CONNECTIONS_MAX);
        assert_eq!(connections(None, Some(20)), 2);
        assert_eq!(connections(None, Some(1)), 1);
    }
}
