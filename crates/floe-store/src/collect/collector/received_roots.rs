//! The temporary roots that a running collector knows, and the socket on which it receives more.
//!
//! The protocol is Nix's (gc.cc): a client sends one line with a full path for each root, and waits
//! for the byte `1`. After the reply, the client asks the database whether the path is valid. So
//! the collector replies only if it will not delete the path, or has deleted it completely.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread::{self, Scope};

use floe_format::{HashPart, StoreDir, StorePath};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::net::{Shutdown, shutdown};

use crate::disk::{Directory, NewMode, StoreLayout};
use crate::error::{IoContext as _, StoreError};

/// The temporary roots, and the paths in deletion. The socket's threads and the collector share it.
#[derive(Debug, Default)]
pub(super) struct ReceivedRoots {
    pub(super) state: Mutex<State>,
    /// Signals that the deletion of a path has ended, or that a client has left.
    changed: Condvar,
}

/// The state of [`ReceivedRoots`].
#[derive(Debug, Default)]
pub(super) struct State {
    /// The hash parts of all temporary roots. A root also keeps files such as the lock of its path.
    pub(super) temporary: HashSet<HashPart>,
    /// The roots that the collector has not seen yet.
    pub(super) new: Vec<HashPart>,
    /// How many files with these hash parts are being deleted.
    in_deletion: HashMap<HashPart, usize>,
    /// How many files are being deleted.
    files_in_deletion: usize,
    /// The number of clients that have the socket open.
    clients: usize,
    is_over: bool,
}

impl State {
    /// Makes new roots for this path wait for the end of its deletion.
    pub(super) fn begin_deletion(&mut self, hash_part: Option<HashPart>) {
        self.files_in_deletion += 1;
        if let Some(hash_part) = hash_part {
            *self.in_deletion.entry(hash_part).or_default() += 1;
        }
    }
}

impl ReceivedRoots {
    /// Ends a deletion that [`State::begin_deletion`] has begun.
    pub(super) fn end_deletion(&self, hash_part: Option<HashPart>) {
        let mut state = self.state.lock();
        state.files_in_deletion -= 1;
        if let Some(hash_part) = hash_part
            && let Some(files) = state.in_deletion.get_mut(&hash_part)
        {
            *files -= 1;
            if *files == 0 {
                state.in_deletion.remove(&hash_part);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until no file is being deleted.
    pub(super) fn wait_for_deletions(&self) {
        let _state = self.wait_while(|state| state.files_in_deletion > 0);
    }

    /// Adds a root. Returns when no file of its path is being deleted.
    fn add(&self, path: &StorePath) {
        let hash_part = path.hash_part();
        let mut state = self.state.lock();
        if state.temporary.insert(hash_part) {
            state.new.push(hash_part);
        }
        drop(state);
        let _state =
            self.wait_while(|state| state.in_deletion.contains_key(&hash_part) && !state.is_over);
    }

    fn wait_while(&self, mut is_waiting: impl FnMut(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        self.changed
            .wait_while(&mut state, |state| is_waiting(state));
        state
    }
}

/// The socket of a running collector. Dropping it disconnects all clients.
#[derive(Debug)]
pub(super) struct RootsServer<'a> {
    listener: UnixListener,
    roots: &'a ReceivedRoots,
    store_dir: &'a StoreDir,
    place: PathBuf,
    /// The connections that are open.
    streams: Mutex<HashMap<u64, UnixStream>>,
}

impl<'a> RootsServer<'a> {
    /// Creates the socket at the place that clients know. The caller must hold the lock of the
    /// collector.
    ///
    /// Errors: those of the system.
    pub(super) fn bind(
        layout: &'a StoreLayout,
        roots: &'a ReceivedRoots,
    ) -> Result<RootsServer<'a>, StoreError> {
        let directory = layout.state_dir.join("gc-socket");
        let directory = Directory::open_or_create(&directory, NewMode::Shared)?;
        let socket = directory.entry("socket".as_ref());
        let place = socket.path();
        let listener = socket.bind_shared_socket();
        let listener = listener.io_context("create the socket", &place)?;
        Ok(RootsServer {
            listener,
            roots,
            store_dir: &layout.store_dir,
            place,
            streams: Mutex::default(),
        })
    }

    /// Starts the threads that receive roots. They end when the returned value is dropped.
    ///
    /// Errors: the system has no thread left.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<RunningServer<'scope>, StoreError> {
        let accept = move || self.accept_all(scope);
        thread::Builder::new()
            .spawn_scoped(scope, accept)
            .io_context("start a thread for", &self.place)?;
        Ok(RunningServer {
            listener: &self.listener,
            roots: self.roots,
            streams: &self.streams,
        })
    }

    fn accept_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        for number in 0.. {
            // A client that finds no thread waits in the queue of the socket.
            let is_full = |state: &State| state.clients >= CLIENTS_MAX && !state.is_over;
            if self.roots.wait_while(is_full).is_over {
                return;
            }
            let Ok((stream, _)) = self.listener.accept() else {
                if self.roots.state.lock().is_over {
                    return;
                }
                // Descriptors ran out. Clients repeat their attempt.
                thread::sleep(ACCEPT_RETRY_INTERVAL);
                continue;
            };
            let Ok(copy) = stream.try_clone() else {
                continue;
            };
            let mut streams = self.streams.lock();
            let mut state = self.roots.state.lock();
            if state.is_over {
                return;
            }
            state.clients += 1;
            streams.insert(number, copy);
            drop((state, streams));
            let serve = move || self.serve(number, &stream);
            if thread::Builder::new().spawn_scoped(scope, serve).is_err() {
                // The client finds its connection closed, and repeats its attempt.
                self.forget(number);
                thread::sleep(ACCEPT_RETRY_INTERVAL);
            }
        }
    }

    fn serve(&self, number: u64, stream: &UnixStream) {
        // The client has ended, or repeats its root on a new connection.
        let _: io::Result<()> = self.receive(stream);
        self.forget(number);
    }

    fn forget(&self, number: u64) {
        self.streams.lock().remove(&number);
        self.roots.state.lock().clients -= 1;
        self.roots.changed.notify_all();
    }

    /// Receives roots until the client disconnects.
    fn receive(&self, stream: &UnixStream) -> io::Result<()> {
        let mut input = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            input
                .by_ref()
                .take(LINE_LEN_MAX)
                .read_until(b'\n', &mut line)?;
            let Some(path) = line.strip_suffix(b"\n") else {
                return Ok(());
            };
            let path = str::from_utf8(path).ok();
            if let Some(path) = path.and_then(|path| self.store_dir.parse(path).ok()) {
                self.roots.add(&path);
                if self.roots.state.lock().is_over {
                    return Ok(());
                }
            }
            // As in Nix, a line that is not a path gets the same reply.
            let mut output = stream;
            output.write_all(b"1")?;
        }
    }
}

/// The running threads of a [`RootsServer`]. Dropping the value ends them.
pub(super) struct RunningServer<'a> {
    listener: &'a UnixListener,
    roots: &'a ReceivedRoots,
    streams: &'a Mutex<HashMap<u64, UnixStream>>,
}

impl Drop for RunningServer<'_> {
    fn drop(&mut self) {
        self.roots.state.lock().is_over = true;
        self.roots.changed.notify_all();
        let _: Result<(), rustix::io::Errno> = shutdown(self.listener, Shutdown::Both);
        for stream in self.streams.lock().values() {
            let _: io::Result<()> = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Each client has a thread. Machines with more builders than this are unknown.
const CLIENTS_MAX: usize = 1000;

/// Longer than any path of a store, so that a client cannot fill the memory.
const LINE_LEN_MAX: u64 = 8192;

/// The pause after a connection that could not be accepted.
const ACCEPT_RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);
