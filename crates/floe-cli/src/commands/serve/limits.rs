//! The limit of connections.

use std::num::NonZeroUsize;

use anyhow::bail;
use floe_server::Config;
use floe_server::config::CONNECTIONS_MAX;

use super::messages;

/// Returns the requested number of connections, limited by the number of open files.
pub(crate) fn connections(
    requested: Option<NonZeroUsize>,
    open_files: Option<u64>,
) -> NonZeroUsize {
    let fit = open_files.map_or(NonZeroUsize::MAX, |files| {
        let own = FILES_OF_THE_SERVER.min(files / 2);
        let free = files.saturating_sub(own) / FILES_PER_CONNECTION;
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        NonZeroUsize::new(free).unwrap_or(NonZeroUsize::MIN)
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
        for (requested, files, expected) in [
            (None, Some(1024), 128),
            (Some(10_000), Some(1024), 128),
            (Some(10), Some(1024), 10),
            (None, None, CONNECTIONS_MAX.get()),
            (None, Some(20), 2),
            (None, Some(1), 1),
        ] {
            let requested = requested.and_then(NonZeroUsize::new);
            assert_eq!(connections(requested, files).get(), expected, "{files:?}");
        }
    }
}
