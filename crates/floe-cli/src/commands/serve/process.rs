//! What `floe serve` and `nix-serve` share: from settings that were chosen to a server that runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use floe_config::{Environment, read_secret_keys};
use floe_format::SecretKey;
pub(crate) use floe_server::config::{
    BACKLOG, KEEP_ALIVE_TIMEOUT, PRIORITY, READ_TIMEOUT, WRITE_TIMEOUT,
};
use floe_server::{Config, Listen, Server};

use super::identity::Identity;
use super::pid_file::PidFile;
use super::{access_log, signals};
use crate::display::eprint_line;

/// What the process does around its server. `floe serve` does nothing of it.
#[derive(Debug, Default)]
pub(crate) struct ProcessOptions {
    /// Whom to become once it listens.
    pub(crate) identity: Option<Identity>,
    /// The file that holds the number of the process while it serves.
    pub(crate) pid_file: Option<PathBuf>,
    /// Where stderr goes once it listens.
    pub(crate) error_log: Option<PathBuf>,
    /// It was started by one that waits until it listens.
    pub(crate) is_daemon: bool,
    /// Signals mean what they mean to starman.
    pub(crate) starman_signals: bool,
}

/// Listens, says so on stderr, and serves until a signal ends it.
pub(crate) fn run(config: Config, process: &ProcessOptions) -> anyhow::Result<()> {
    let log = |file: &PathBuf| access_log::append_to(file, "opening the error log");
    let error_log = process.error_log.as_ref().map(log).transpose()?;
    let mut server = Server::bind(config)?;
    signals::stop_on_signals(server.shutdown_handle(), process.starman_signals)?;
    let _pid_file = process
        .pid_file
        .as_deref()
        .map(PidFile::write)
        .transpose()?;
    if let Some(identity) = &process.identity {
        identity.switch()?;
    }
    // Nobody is told that it is there before this user could open the store.
    server.prepare()?;
    announce(server.addresses());
    if let Some(file) = &error_log {
        rustix::stdio::dup2_stderr(file).context("turning stderr to the error log")?;
        announce(server.addresses());
    }
    if process.is_daemon {
        detach_from_terminal(error_log.is_some())?;
    }
    server.run()?;
    Ok(())
}

/// What a waiting parent reads on the stdout of its child.
pub(crate) const READY: &str = "ready\n";

/// Tells the parent that all is well, and holds on to nothing of the terminal.
fn detach_from_terminal(has_error_log: bool) -> anyhow::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("opening /dev/null")?;
    let attempt = "leaving the terminal";
    io::stdout().write_all(READY.as_bytes()).context(attempt)?;
    let turn = |null: &File| {
        rustix::stdio::dup2_stdout(null)?;
        match has_error_log {
            true => Ok(()),
            false => rustix::stdio::dup2_stderr(null),
        }
    };
    turn(&null).context(attempt)
}

fn announce(addresses: &[Listen]) {
    for address in addresses {
        eprint_line(format_args!("listening on {}", url(address)));
    }
}

/// An address as a client would write it.
pub(crate) fn url(address: &Listen) -> String {
    match address {
        Listen::Tcp { .. } => format!("http://{address}"),
        Listen::Unix(_) => address.to_string(),
    }
}

/// What the operator should know, on stderr.
pub(crate) fn warn(warning: &str) {
    crate::display::warn(warning);
}

/// [`Config::warn`] of every server.
pub(crate) fn warning_sink() -> Arc<dyn Fn(&str) + Send + Sync> {
    Arc::new(warn)
}

/// Reads keys, and passes their warnings on.
pub(crate) fn secret_keys(
    files: &[PathBuf],
    environment: &Environment,
) -> anyhow::Result<Vec<SecretKey>> {
    let (keys, warnings) = read_secret_keys(files, environment)?;
    for warning in warnings {
        warn(&warning);
    }
    Ok(keys)
}

/// The port of every peer.
pub(crate) const PORT: u16 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_and_an_ipv6_address_are_announced_as_clients_write_them() {
        let tcp = Listen::Tcp {
            host: "::1".into(),
            port: 80,
        };
        assert_eq!(url(&tcp), "http://[::1]:80");
        assert_eq!(url(&Listen::Unix("/run/floe".into())), "unix:/run/floe");
    }
}
