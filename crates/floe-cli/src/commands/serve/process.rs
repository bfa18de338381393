//! Runs a server: the common part of `floe serve` and `nix-serve`.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use floe_config::{Environment, read_secret_keys};
use floe_format::SecretKey;
use floe_server::{AccessLogHandle, Config, ReloadHandle, Server};
use serde_json::json;

use super::access_log;
use super::identity::Identity;
use super::messages;
use super::pid_file::PidFile;
use super::service_manager;
use super::signals::{self, TaskSignal};
use super::warnings;
use crate::display::{Level, eprint_line, is_json, json_event, warn, write_event};

/// The tasks of the process besides serving. `floe serve` has few of them.
#[derive(Debug, Default)]
pub(crate) struct ProcessOptions {
    /// The user and group to switch to once the server listens.
    pub(crate) identity: Option<Identity>,
    /// The PID file.
    pub(crate) pid_file: Option<PathBuf>,
    /// The file that replaces stderr once the server listens.
    pub(crate) error_log: Option<PathBuf>,
    /// Whether a parent process waits until the server listens.
    pub(crate) is_daemon: bool,
    /// Whether no setting names an address, so that only this machine can connect.
    pub(crate) has_default_address: bool,
    /// Whether signals have the same effect as with starman.
    pub(crate) starman_signals: bool,
}

/// The task of SIGHUP.
pub(crate) type ReloadTask = Box<dyn Fn() + Send>;

/// Listens, announces the addresses on stderr, and serves until a signal ends it.
///
/// `reload` gets the handles of the server, and returns the task of SIGHUP.
pub(crate) fn run(
    config: Config,
    process: &ProcessOptions,
    reload: impl FnOnce(ReloadHandle, AccessLogHandle) -> ReloadTask,
) -> anyhow::Result<()> {
    let log = |file: &PathBuf| access_log::append_to(file, "error log");
    let error_log = process.error_log.as_ref().map(log).transpose()?;
    let reopen = TaskSignal::reopen()?;
    // starman does something else at SIGHUP.
    let reload_signal = if process.starman_signals {
        None
    } else {
        Some(TaskSignal::reload()?)
    };
    let mut server = Server::bind(config)?;
    signals::stop_on_signals(server.shutdown_handle(), process.starman_signals)?;
    let log = server.access_log_handle();
    let task = reload(server.reload_handle(), log.clone());
    reopen.run(move || log.reopen())?;
    let pid_file = process.pid_file.as_deref();
    let _pid_file = pid_file.map(PidFile::write).transpose()?;
    if let Some(identity) = &process.identity {
        identity.switch()?;
    }
    // The store must be open before the addresses are announced, as the user that will serve.
    server.prepare()?;
    announce(&server);
    service_manager::notify_ready(&server.urls());
    service_manager::start_watchdog(server.health_handle())?;
    // The end of a reload tells systemd that the server is ready.
    if let Some(signal) = reload_signal {
        signal.run(task)?;
    }
    if process.has_default_address {
        eprint_line(messages::ONLY_THIS_MACHINE);
    }
    if let Some(file) = &error_log {
        rustix::stdio::dup2_stderr(file).context(messages::STDERR)?;
        announce(&server);
    }
    if process.is_daemon {
        detach_from_terminal(error_log.is_some())?;
    }
    server.run()?;
    warnings::finish(|| json_event("stopped", messages::STOPPED));
    Ok(())
}

/// The line that a waiting parent process reads from the stdout of its child.
pub(crate) const READY: &str = "ready\n";

/// Tells the parent process that the server listens, and closes all streams of the terminal.
fn detach_from_terminal(has_error_log: bool) -> anyhow::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null");
    let null = null.context(messages::DEV_NULL)?;
    let attempt = messages::TERMINAL;
    io::stdout().write_all(READY.as_bytes()).context(attempt)?;
    rustix::stdio::dup2_stdout(&null).context(attempt)?;
    if !has_error_log {
        rustix::stdio::dup2_stderr(&null).context(attempt)?;
    }
    Ok(())
}

fn announce(server: &Server) {
    for url in server.urls() {
        announce_one("listening", &url, messages::listening(&url));
    }
    for url in server.redirect_urls() {
        announce_one("redirecting", &url, messages::redirecting(&url));
    }
    for url in server.metrics_urls() {
        announce_one("servingMetrics", &url, messages::serving_metrics(&url));
    }
}

fn announce_one(event: &str, url: &str, line: String) {
    if is_json() {
        write_event(Level::Info, event, json!({ "message": line, "url": url }))
    } else {
        eprint_line(line)
    }
}

/// Reads secret keys, and prints their warnings.
pub(crate) fn secret_keys(
    files: &[PathBuf],
    environment: &Environment,
) -> anyhow::Result<Vec<SecretKey>> {
    let (keys, warnings) = read_secret_keys(files, environment)?;
    warnings.into_iter().for_each(warn);
    Ok(keys)
}
