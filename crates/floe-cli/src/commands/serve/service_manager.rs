//! Takes sockets from systemd, and tells it that the server is ready, reloads, ends and is alive.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use floe_server::{HealthHandle, PassedSocket, SocketUse};
use listenfd::ListenFd;
use sd_notify::NotifyState;

use super::messages;
use crate::display::warn;

/// Takes the sockets that systemd passes. Names tell which are for something else than clients.
///
/// Errors: a descriptor is no socket for streams.
pub(super) fn take_sockets() -> anyhow::Result<Vec<PassedSocket>> {
    let names = sd_notify::listen_fds_with_names().context(messages::PASSED_SOCKETS)?;
    let names: Vec<String> = names.map(|(_, name)| name).collect();
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let socket = take(&mut passed, number).context(messages::PASSED_SOCKETS)?;
        sockets.extend(socket.map(|socket| PassedSocket {
            socket,
            used_for: match &**name {
                METRICS_NAME => SocketUse::Monitoring,
                REDIRECT_NAME => SocketUse::Redirect,
                _ => SocketUse::Clients,
            },
        }));
    }
    Ok(sockets)
}

fn take(passed: &mut ListenFd, number: usize) -> io::Result<Option<OwnedFd>> {
    match passed.take_unix_listener(number) {
        Ok(unix) => Ok(unix.map(OwnedFd::from)),
        Err(_) => Ok(passed.take_tcp_listener(number)?.map(OwnedFd::from)),
    }
}

/// Tells systemd that the server listens at some addresses.
pub(crate) fn notify_ready(urls: &[String]) {
    let status = format!("listening on {}", urls.join(" and "));
    notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// Tells systemd that a reload begins. [`notify_reloaded`] tells of its end.
pub(super) fn notify_reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// Tells systemd that a reload has ended, with or without success.
pub(super) fn notify_reloaded(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells systemd that the server ends.
pub(crate) fn notify_stopping() {
    let status = NotifyState::Status("completing running responses");
    notify(&[NotifyState::Stopping, status]);
}

/// Warns of the first failure alone.
fn notify(states: &[NotifyState<'_>]) {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    if let Err(error) = sd_notify::notify(states)
        && !HAS_FAILED.swap(true, Ordering::Relaxed)
    {
        warn(format_args!(
            "cannot tell systemd the state of the server: {error}"
        ));
    }
}

/// Tells systemd again and again that the server is alive, if systemd wants to know it
/// (`WatchdogSec=`). A server whose network threads do not run any more is started anew.
///
/// Errors: the system refuses the thread.
pub(crate) fn start_watchdog(server: HealthHandle) -> anyhow::Result<()> {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return Ok(());
    };
    let least = limit.max(ACTIVITY_TIME_MIN);
    thread::Builder::new()
        .name("watchdog".into())
        .spawn(move || {
            loop {
                if server.is_active_within(least) {
                    notify(&[NotifyState::Watchdog]);
                }
                // systemd wants a sign at least twice in its time.
                thread::sleep(limit / 3);
            }
        })
        .context("cannot start the thread of the watchdog")?;
    Ok(())
}

/// The name of sockets for monitoring (`FileDescriptorName=`).
const METRICS_NAME: &str = "metrics";

/// The name of sockets that redirect to HTTPS.
const REDIRECT_NAME: &str = "redirect";

/// Network threads are active at least twice in this time.
const ACTIVITY_TIME_MIN: Duration = Duration::from_secs(2);
