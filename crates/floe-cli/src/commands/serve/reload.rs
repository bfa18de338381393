//! SIGHUP: takes over changed settings, and reads files anew.

use floe_config::{Environment, ServeSettings};
use floe_server::{AccessLogHandle, ReloadHandle};
use parking_lot::Mutex;

use super::args::ServeArgs;
use super::process::ReloadTask;
use super::{config, limits, messages, service_manager, settings};
use crate::display::{report_event, warn};

/// Where the settings come from.
pub(super) struct Origin {
    pub(super) args: ServeArgs,
    pub(super) environment: Environment,
    pub(super) open_files: Option<u64>,
}

/// Returns the task of SIGHUP for a server with these settings.
pub(super) fn task(
    origin: Origin,
    started_with: ServeSettings,
    (server, log): (ReloadHandle, AccessLogHandle),
) -> ReloadTask {
    let latest = Mutex::new(started_with.clone());
    Box::new(move || {
        let mut latest = latest.lock();
        service_manager::notify_reloading();
        let text = match origin.reload(&server) {
            Ok(settings) => {
                log.reopen();
                let mut changed = latest.changed_keys(&settings, true);
                let mut unchanged = started_with.changed_keys(&settings, false);
                if started_with.tls_cert.is_set() != settings.tls_cert.is_set() {
                    // A server that runs cannot begin or end to use TLS.
                    changed.retain(|key| !is_of_tls(key));
                    let all = started_with.changed_keys(&settings, true).into_iter();
                    unchanged.extend(all.filter(|key| is_of_tls(key)));
                }
                let text = messages::reloaded(&changed);
                report_event("reloaded", &text);
                if !unchanged.is_empty() {
                    warn(messages::needs_restart(&unchanged));
                }
                *latest = settings;
                text
            }
            Err(error) => {
                let text = messages::reload_failed(format!("{error:#}"));
                warn(&text);
                text
            }
        };
        service_manager::notify_reloaded(&text);
    })
}

fn is_of_tls(key: &str) -> bool {
    key.starts_with("tls_")
}

impl Origin {
    /// Reads the settings and the files that they name, and lets the server use them.
    ///
    /// Errors: those of the start of a server. Then nothing changes.
    fn reload(&self, server: &ReloadHandle) -> anyhow::Result<ServeSettings> {
        let settings = settings::load(&self.args, &self.environment, self.open_files)?;
        let config = config(&settings, &self.environment, true)?;
        limits::check_open_files(&config, self.open_files)?;
        server.reload(Some(&config))?;
        Ok(settings)
    }
}
