//! The limit of connections.

use anyhow::bail;
use floe_server::Config;
use floe_server::config::CONNECTIONS_MAX;

use super::messages;

/// Returns the requested number of connections, limited by the number of open files.
pub(crate) fn connections(requested: Option<usize>, open_files: Option<u64>) -> usize {
    let fit = open_files.map_or(usize::MAX, |files| {
        let own = FILES_OF_THE_SERVER.min(files / 2);
        let free = files.saturating_sub(own) / FILES_PER_CONNECTION;
        usize::try_from(free).unwrap_or(usize::MAX).max(1)
    });
    requested.unwrap_or(CONNECTIONS_MAX).min(fit)
}

/// Checks that the limit of open files suffices to serve a client.
///
/// Errors: the limit is too low.
pub(crate) fn check_open_files(config: &Config, open_files: Option<u64>) -> anyhow::Result<()> {
    let needed = config.open_files_min();
    match open_files.filter(|files| *files < needed) {
        Some(files) => bail!(messages::open_files(files, needed)),
        None => Ok(()),
    }
}

/// The files of a connection: its socket, and the path, the directory and the file that it sends.
const FILES_PER_CONNECTION: u64 = 4;

/// The other files of the server: up to 256 packed NARs, the database and its side files on each
/// thread, standard streams, logs and listening sockets.
const FILES_OF_THE_SERVER: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_fit_into_the_limit_of_open_files() {
        assert_eq!(connections(None, Some(1024)), 128);
        assert_eq!(connections(Some(10_000), Some(1024)), 128);
        assert_eq!(connections(Some(10), Some(1024)), 10);
        assert_eq!(connections(None, None), CONNECTIONS_MAX);
        assert_eq!(connections(None, Some(20)), 2);
        assert_eq!(connections(None, Some(1)), 1);
    }
}
