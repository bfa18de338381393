//! The clients of the daemon: a thread and an open store for each of them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use floe_daemon::{HostError, refuse_worker, serve_worker};
use floe_transfer::{CANCEL_POLL, StoreConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Gid, Uid};
use sd_notify::NotifyState;

use super::VERSION;
use super::socket::Socket;
use crate::display::{report_event, warn};
use crate::hosting::{self, Hosting};
use crate::open_files;
use crate::options::Settings;
use crate::signals;

/// Serves clients until a signal. Those that are connected get some time to end.
///
/// Errors: the socket cannot be opened, or the store cannot be served.
pub(super) fn run(settings: &Settings, store: &Arc<dyn StoreConfig>) -> anyhow::Result<()> {
    // Each client needs several files.
    open_files::raise();
    let hosting = Arc::new(Hosting::new(store, settings, true)?);
    // A store that cannot be opened is known before the first client.
    drop(hosting.open(false)?);
    let path = socket_path(settings, &hosting);
    let socket = Socket::open(&path)?;
    let stop = Arc::new(AtomicBool::new(false));
    signals::raise_on_signals(&stop)?;
    report_event("listening", &format!("listening at {}", path.display()));
    sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that floe is ready")?;
    let clients = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::Relaxed) {
        if let Some(stream) = accept(&socket)? {
            // An error of one client must not end the daemon of all.
            if let Err(error) = start(stream, settings, (&hosting, &clients)) {
                warn(format_args!("cannot serve a client: {error:#}"));
            }
        }
    }
    drop(socket);
    let deadline = Instant::now() + END_TIMEOUT;
    while clients.load(Ordering::Relaxed) > 0 && Instant::now() < deadline {
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

/// Starts the thread of a client.
fn start(
    stream: UnixStream,
    settings: &Settings,
    (hosting, clients): (&Arc<Hosting>, &Arc<AtomicUsize>),
) -> anyhow::Result<()> {
    let peer = socket_peercred(&stream).context("cannot find out the user of a client")?;
    let (user, group) = (peer.uid, peer.gid);
    let rights = rights(settings, user, group)?;
    let (hosting, clients) = (hosting.clone(), clients.clone());
    clients.fetch_add(1, Ordering::Relaxed);
    let counted = clients.clone();
    let serve = move || {
        let _counted = Counted(counted);
        if let Err(error) = serve(&hosting, rights, stream) {
            // A client that ends in the middle is not worth a line.
            let ended = error.downcast_ref();
            let is_ended = matches!(
                ended,
                Some(HostError::Connection { .. } | HostError::Ended(_))
            );
            if !is_ended {
                warn(format_args!(
                    "closing the connection of user {}: {error}",
                    user.as_raw()
                ));
            }
        }
    };
    if let Err(error) = thread::Builder::new().spawn(serve) {
        clients.fetch_sub(1, Ordering::Relaxed);
        warn(format_args!("cannot serve a client: {error}"));
    }
    Ok(())
}

/// The rights of a user.
#[derive(Clone, Copy, Debug)]
enum Rights {
    Trusted,
    Allowed,
    Refused(Uid),
}

fn rights(settings: &Settings, user: Uid, group: Gid) -> anyhow::Result<Rights> {
    Ok(if hosting::is_trusted(settings, user, group)? {
        Rights::Trusted
    } else if hosting::is_allowed(settings, user, group)? {
        Rights::Allowed
    } else {
        Rights::Refused(user)
    })
}

fn serve(hosting: &Hosting, rights: Rights, stream: UnixStream) -> anyhow::Result<()> {
    let output: OwnedFd = stream.try_clone()?.into();
    let streams = (stream.into(), output);
    let dir = &hosting.layout().store_dir;
    let is_trusted = match rights {
        Rights::Trusted => true,
        Rights::Allowed => false,
        Rights::Refused(user) => {
            let reason = format!(
                "cannot use the daemon: allowed-users does not name the user {}",
                user.as_raw()
            );
            return Ok(refuse_worker(dir, streams, VERSION, &reason)?);
        }
    };
    match hosting.open(is_trusted) {
        Ok(store) => serve_worker(&store, streams, VERSION)?,
        Err(error) => refuse_worker(dir, streams, VERSION, &format!("{error:#}"))?,
    }
    Ok(())
}

/// Counts a client until its end.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long clients may go on after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(10);
