//! The clients of the daemon: a thread and an open store for each of them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use floe_daemon::{HostError, WorkerClient};
use floe_transfer::{CANCEL_POLL, Cancel, StoreConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Gid, Uid};
use sd_notify::NotifyState;

use super::VERSION;
use super::connected::{Connected, Place};
use super::socket::Socket;
use crate::display::{report_event, warn};
use crate::hosting::{Hosting, names_user};
use crate::open_files;
use crate::options::Settings;
use crate::signals;

/// Serves clients until a signal. Those that are connected get some time to end.
///
/// Errors: the socket cannot be opened, or the store cannot be served.
pub(super) fn run(settings: &Settings, store: &Arc<dyn StoreConfig>) -> anyhow::Result<()> {
    // Each client needs several files.
    let connected = Arc::new(Connected::new(open_files::raise()));
    let hosting = Arc::new(Hosting::new(store, settings, true)?);
    // A store that cannot be opened is known before the first client.
    drop(hosting.open(false, Cancel::default())?);
    let users = Arc::new(Users {
        trusted: settings.config.trusted_users.get().0.clone(),
        allowed: settings.config.allowed_users.get().0.clone(),
    });
    let path = socket_path(settings, &hosting);
    let stop = Arc::new(AtomicBool::new(false));
    // A client may see the socket at once, and then send a signal.
    signals::raise_on_signals(&stop)?;
    let socket = Socket::open(&path)?;
    report_event("listening", &format!("listening at {}", path.display()));
    sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that floe is ready")?;
    while !stop.load(Ordering::Relaxed) {
        if let Some(stream) = accept(&socket)? {
            // An error of one client must not end the daemon of all.
            if let Err(error) = start(stream, &users, (&hosting, &connected)) {
                warn(format_args!("cannot serve a client: {error:#}"));
            }
        }
        connected.cancel_hung_up();
    }
    drop(socket);
    let deadline = Instant::now() + END_TIMEOUT;
    while !connected.is_empty() && Instant::now() < deadline {
        thread::sleep(CANCEL_POLL);
    }
    Ok(())
}

/// Returns the place of the socket: that of `NIX_DAEMON_SOCKET_PATH`, else the one beside the
/// store.
fn socket_path(settings: &Settings, hosting: &Hosting) -> PathBuf {
    let named = settings.context.daemon_socket.clone();
    named.unwrap_or_else(|| hosting.layout().state_dir.join("daemon-socket/socket"))
}

/// Waits a moment for a client.
fn accept(socket: &Socket) -> anyhow::Result<Option<UnixStream>> {
    let mut fds = [PollFd::new(&socket.listener, PollFlags::IN)];
    let wait = Timespec::try_from(CANCEL_POLL)?;
    match poll(&mut fds, Some(&wait)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
        polled => polled.context("cannot wait for a client")?,
    };
    match socket.listener.accept() {
        Ok((stream, _)) => Ok(Some(stream)),
        Err(error) => {
            // A client that is gone already, or too many of them.
            warn(format_args!("cannot accept a client: {error}"));
            thread::sleep(CANCEL_POLL);
            Ok(None)
        }
    }
}

/// Starts the thread of a client. The system may wait long for the lookup of a user, so that
/// happens there.
fn start(
    stream: UnixStream,
    users: &Arc<Users>,
    (hosting, connected): (&Arc<Hosting>, &Arc<Connected>),
) -> anyhow::Result<()> {
    let peer = socket_peercred(&stream).context("cannot find out the user of a client")?;
    let Some(place) = connected.place(peer.uid, &stream)? else {
        // Even refusals are too many.
        return Ok(());
    };
    let (users, hosting) = (users.clone(), hosting.clone());
    let serve = move || {
        let served = serve(&hosting, (&users, peer.uid, peer.gid), stream, &place);
        if let Err(error) = served
            && !is_end(&error)
        {
            let user = peer.uid.as_raw();
            warn(format_args!(
                "closing the connection of user {user}: {error:#}"
            ));
        }
    };
    thread::Builder::new().spawn(serve)?;
    Ok(())
}

/// Whether a client has ended the connection in the middle, which is not worth a line.
fn is_end(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(HostError::Connection { .. } | HostError::Ended(_))
    )
}

/// The users that may connect.
struct Users {
    trusted: Vec<String>,
    allowed: Vec<String>,
}

impl Users {
    /// Returns whether a user is trusted.
    ///
    /// Errors: it may not connect, or the system cannot look it up.
    fn is_trusted(&self, user: Uid, group: Gid) -> anyhow::Result<bool> {
        if names_user(&self.trusted, user, group)? {
            return Ok(true);
        }
        if names_user(&self.allowed, user, group)? {
            return Ok(false);
        }
        anyhow::bail!(
            "cannot use the daemon: allowed-users does not name the user {}",
            user.as_raw()
        );
    }
}

/// Serves a client. Its store is opened after it has spoken, so that a silent one costs little.
fn serve(
    hosting: &Hosting,
    (users, user, group): (&Users, Uid, Gid),
    stream: UnixStream,
    place: &Place,
) -> anyhow::Result<()> {
    let timeouts = stream.try_clone()?;
    timeouts.set_read_timeout(Some(GREETING_TIMEOUT))?;
    let output: OwnedFd = stream.try_clone()?.into();
    let streams = (stream.into(), output);
    let is_trusted = place.refusal().map_or_else(
        || users.is_trusted(user, group),
        |reason| Err(reason.into()),
    );
    let dir = &hosting.layout().store_dir;
    let trusted = is_trusted.as_ref().is_ok_and(|it| *it);
    let Some(client) = WorkerClient::greet(dir, streams, VERSION, trusted)? else {
        return Ok(());
    };
    let opened = is_trusted.and_then(|trusted| hosting.open(trusted, place.cancel.clone()));
    match opened {
        Ok(store) => {
            timeouts.set_read_timeout(None)?;
            drop(timeouts);
            Ok(client.serve(&store)?)
        }
        Err(error) => Ok(client.refuse(&format!("{error:#}"))?),
    }
}

/// How long a client may be silent before its first request.
const GREETING_TIMEOUT: Duration = Duration::from_secs(30);

/// How long clients may go on after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(10);
