//! The socket over which floe sends new temporary roots to a running garbage collector.
//!
//! The protocol is Nix's (gc.cc): one line with a full path for each root. The collector replies to
//! each line with the byte `1`.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use floe_format::{StoreDir, StorePath};

use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::locks::{COLLECTOR, LOCK_POLL_INTERVAL, LOCK_TIMEOUT, LockWait, NOTIFY_AFTER};

/// The connection to a collector. It stays open between two calls.
#[derive(Debug)]
pub(super) struct GcSocket {
    path: PathBuf,
    stream: Option<UnixStream>,
}

impl GcSocket {
    pub(super) fn new(layout: &StoreLayout) -> GcSocket {
        GcSocket {
            path: layout.state_dir.join("gc-socket/socket"),
            stream: None,
        }
    }

    /// Sends roots to the running collector. Returns `false` if it has ended or does not listen
    /// yet.
    pub(super) fn send_roots<'a>(
        &mut self,
        store_dir: &StoreDir,
        paths: impl Iterator<Item = &'a StorePath>,
        lock_wait: &LockWait,
    ) -> Result<bool, StoreError> {
        if self.stream.is_none() {
            self.stream = connect(&self.path)?;
        }
        let Some(stream) = self.stream.as_mut() else {
            return Ok(false);
        };
        for path in paths {
            let line = format!("{}\n", store_dir.full_path(path));
            let refused = |reason| StoreError::CollectorRefused {
                path: self.path.clone(),
                reason,
            };
            let sent = stream.write_all(line.as_bytes());
            match sent.and_then(|()| read_reply(stream, lock_wait)) {
                Ok(b'1') => {}
                Ok(reply) => return Err(refused(format!("it answered {reply:?} to {path}"))),
                Err(error) if is_disconnected(&error) => {
                    self.stream = None;
                    return Ok(false);
                }
                Err(error) => {
                    // The protocol state is unknown: the next request needs a new connection.
                    self.stream = None;
                    lock_wait.check_cancelled()?;
                    return Err(refused(error.to_string()));
                }
            }
        }
        Ok(true)
    }
}

fn connect(socket: &Path) -> Result<Option<UnixStream>, StoreError> {
    let connected = connect_long_path(socket).and_then(|stream| {
        stream.set_read_timeout(Some(LOCK_POLL_INTERVAL))?;
        Ok(Some(stream))
    });
    match connected {
        Err(error) if is_disconnected(&error) => Ok(None),
        connected => connected.io_context("connect to the garbage collector at", socket),
    }
}

/// Connects to a socket with a path of any length. Nix binds a long path from inside its directory.
fn connect_long_path(socket: &Path) -> io::Result<UnixStream> {
    match (socket.parent(), socket.file_name()) {
        (Some(directory), Some(name)) if socket.as_os_str().len() > SOCKET_PATH_LEN_MAX => {
            // A path through a directory descriptor is short. Changing the working directory would
            // affect the whole process.
            let directory = Directory::open(directory).map_err(io::Error::other)?;
            UnixStream::connect(directory.place_by_descriptor(name))
        }
        _ => UnixStream::connect(socket),
    }
}

/// Reads the reply of the collector. It replies between two deletions, and one of them may be a
/// large tree.
fn read_reply(stream: &mut UnixStream, lock_wait: &LockWait) -> io::Result<u8> {
    let began = Instant::now();
    let mut is_notified = false;
    let mut reply = [0];
    loop {
        match stream.read_exact(&mut reply) {
            Ok(()) => return Ok(reply[0]),
            Err(error) if is_timeout(&error) && began.elapsed() < LOCK_TIMEOUT => {
                if lock_wait.check_cancelled().is_err() {
                    return Err(error);
                }
                if began.elapsed() >= NOTIFY_AFTER && !std::mem::replace(&mut is_notified, true) {
                    lock_wait.notify_of_wait(COLLECTOR, LOCK_TIMEOUT);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a read timed out.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn is_disconnected(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(
        error.kind(),
        NotFound | ConnectionRefused | ConnectionReset | BrokenPipe | UnexpectedEof
    )
}

/// The longest socket address: 108 bytes, of which the last is NUL.
const SOCKET_PATH_LEN_MAX: usize = 107;
