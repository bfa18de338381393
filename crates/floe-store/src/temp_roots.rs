//! Temporary roots: what this process is about to use, so that no collector takes it away.
//!
//! The order is Nix's (gc.cc): root first, ask the database afterwards. A collector that is
//! already running does not look at the files again; it is told over its socket, and answers
//! when it has understood.
//!
//! Not guaranteed: that a path which was valid when a collector answered stays so. Those before
//! Nix 2.36 do not look at their roots again between the search for garbage and its deletion. So
//! whoever registers a path looks at its references again, and whoever relies on anything else
//! waits for the end of the collector ([`RootsFile::outlast_collector`]).

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use floe_format::StorePath;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};

use crate::error::{At, StoreError};
use crate::layout::Layout;
use crate::lock::{open_lock_file, try_lock};
use crate::patience::{LOCK_POLL, LOCK_WAIT, Patience, SILENCE};
use crate::resume::Left;

/// The temporary roots of all writers that are opened with it: one file for each store, for as long
/// as one of them writes there. For two users in one process, one each; clones are the same.
#[derive(Clone, Debug, Default)]
pub struct TempRoots(Arc<Mutex<HashMap<PathBuf, Weak<SharedRoots>>>>);

impl TempRoots {
    /// The file for a store, which is made if there is none.
    pub(crate) fn of(&self, layout: &Layout) -> Result<Arc<SharedRoots>, StoreError> {
        let mut stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(roots) = stores.get(&layout.state).and_then(Weak::upgrade) {
            return Ok(roots);
        }
        let roots = Arc::new(SharedRoots {
            file: Mutex::new(RootsFile::create(layout)?),
            left: Left::default(),
        });
        stores.retain(|_, roots| roots.strong_count() > 0);
        stores.insert(layout.state.clone(), Arc::downgrade(&roots));
        Ok(roots)
    }
}

/// The state that all writers with the same [`TempRoots`] share for one store.
#[derive(Debug)]
pub(crate) struct SharedRoots {
    file: Mutex<RootsFile>,
    /// Sealed trees that runs have left which ended early.
    pub(crate) left: Left,
}

impl SharedRoots {
    /// Locks the file. A panic while it was locked is harmless: the file then lists at most more
    /// roots than are needed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, RootsFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedRoots {
    fn drop(&mut self) {
        // The file names the paths of the trees, so it has to stay as long as they do.
        if self.left.let_lie() {
            self.lock().is_kept = true;
        }
    }
}

/// Whether a file of temporary roots is floe's, by its name: `<pid>-floe-<n>`.
pub(crate) fn is_our_name(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.split_once("-floe-")
        .is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// A file of temporary roots. Dropping it gives them up, unless the file is to be kept.
#[derive(Debug)]
pub(crate) struct RootsFile {
    file: File,
    path: PathBuf,
    gc_lock: File,
    gc_lock_path: PathBuf,
    collector: Option<UnixStream>,
    /// Whether a collector was told of roots that has not been seen to have ended.
    is_told: bool,
    is_kept: bool,
    layout: Layout,
}

impl RootsFile {
    /// Makes the file `temproots/<pid>-floe-<n>`. Nix takes a file named by the bare process
    /// number for a stale one of its own and removes it; it reads the number off the front of
    /// any other name just as well.
    pub(crate) fn create(layout: &Layout) -> Result<RootsFile, StoreError> {
        let gc_lock_path = layout.state.join("gc.lock");
        let gc_lock = open_lock_file(&gc_lock_path)?;
        loop {
            let number = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-floe-{number}", std::process::id());
            let path = layout.state.join("temproots").join(name);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .at("creating the temporary roots file", &path)?;
            if !try_lock(&file, &path, FlockOperation::NonBlockingLockExclusive)? {
                continue;
            }
            // A dead process has left it, whose leftovers it still names. Or somebody came between
            // opening and locking, took it for such a one and unlinked it: a collector marks it,
            // and whoever clears up after the dead may have let go of it again.
            let found = file.metadata().at("examining", &path)?;
            if found.size() == 0 && found.nlink() > 0 {
                let layout = layout.clone();
                return Ok(RootsFile {
                    file,
                    path,
                    gc_lock,
                    gc_lock_path,
                    collector: None,
                    is_told: false,
                    is_kept: false,
                    layout,
                });
            }
        }
    }

    /// The file's name, which no other process that lives has for one of its own.
    pub(crate) fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Writes down a path for those who come later: collectors, and who clears up after this run.
    pub(crate) fn note(&mut self, path: &StorePath) -> Result<(), StoreError> {
        self.write(std::iter::once(path))
    }

    /// Protects paths from garbage collection until this value is dropped. Returns when any
    /// collector, running or to come, knows of them.
    pub(crate) fn add<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a StorePath> + Clone,
        patience: &Patience,
    ) -> Result<(), StoreError> {
        // Before anybody is told: one collector may end and the next one read the files between
        // its answer and a later line.
        self.write(paths.clone())?;
        let lock_path = self.gc_lock_path.clone();
        patience.wait(COLLECTOR, &lock_path, || {
            // While the lock is held shared no collection can begin, so all paths go in together.
            let operation = FlockOperation::NonBlockingLockShared;
            if try_lock(&self.gc_lock, &lock_path, operation)? {
                flock(&self.gc_lock, FlockOperation::Unlock).at("unlocking", &lock_path)?;
                self.is_told = false;
                return Ok(Some(()));
            }
            let is_told = self.tell_collector(paths.clone(), patience)?;
            self.is_told |= is_told;
            Ok(is_told.then_some(()))
        })
    }

    /// Waits for the end of a collector that was told of roots. What is valid then stays valid. One
    /// that takes longer than any wait has long begun with other garbage than what it had found to
    /// be such when it answered.
    pub(crate) fn outlast_collector(&mut self, patience: &Patience) -> Result<(), StoreError> {
        if !self.is_told {
            return Ok(());
        }
        let lock_path = self.gc_lock_path.clone();
        let waited = patience.wait(COLLECTOR, &lock_path, || {
            let operation = FlockOperation::NonBlockingLockShared;
            Ok(try_lock(&self.gc_lock, &lock_path, operation)?.then_some(()))
        });
        if matches!(waited, Err(StoreError::LockTimeout { .. })) {
            return Ok(());
        }
        waited?;
        self.is_told = false;
        flock(&self.gc_lock, FlockOperation::Unlock).at("unlocking", &lock_path)
    }

    fn write<'a>(&mut self, paths: impl Iterator<Item = &'a StorePath>) -> Result<(), StoreError> {
        let mut text = Vec::new();
        for path in paths {
            text.extend_from_slice(self.layout.store_dir.print(path).as_bytes());
            text.push(0);
        }
        let mut append = || {
            let end = self.file.seek(SeekFrom::End(0))?;
            let written = self.file.write_all(&text);
            if written.is_err() {
                // Every collector would stumble over half a path, and miss the one after it.
                self.file.set_len(end)?;
            }
            written
        };
        append().at("writing temporary roots to", &self.path)
    }

    /// Tells the running collector; `false` if it is gone or not yet listening.
    fn tell_collector<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a StorePath>,
        patience: &Patience,
    ) -> Result<bool, StoreError> {
        let socket = self.layout.state.join("gc-socket/socket");
        if self.collector.is_none() {
            self.collector = connect(&socket)?;
        }
        let Some(stream) = self.collector.as_mut() else {
            return Ok(false);
        };
        for path in paths {
            let line = format!("{}\n", self.layout.store_dir.print(path));
            let refused = |reason| StoreError::CollectorRefused {
                path: socket.clone(),
                reason,
            };
            let told = stream.write_all(line.as_bytes());
            match told.and_then(|()| read_answer(stream, patience)) {
                Ok(b'1') => {}
                Ok(answer) => return Err(refused(format!("it answered {answer:?} to {path}"))),
                Err(error) if is_gone(&error) => {
                    self.collector = None;
                    return Ok(false);
                }
                Err(error) => {
                    // Half a conversation is no place to begin the next one.
                    self.collector = None;
                    patience.check()?;
                    return Err(refused(error.to_string()));
                }
            }
        }
        Ok(true)
    }
}

impl Drop for RootsFile {
    fn drop(&mut self) {
        if !self.is_kept {
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

fn connect(socket: &Path) -> Result<Option<UnixStream>, StoreError> {
    match connect_anywhere(socket) {
        Ok(stream) => {
            stream
                .set_read_timeout(Some(LOCK_POLL))
                .at("connecting to", socket)?;
            Ok(Some(stream))
        }
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error).at("connecting to the garbage collector at", socket),
    }
}

/// Connects to a socket however long its path is. Nix binds a long one from inside its directory.
fn connect_anywhere(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return UnixStream::connect(socket);
    };
    if socket.as_os_str().len() <= SOCKET_PATH_LEN_MAX {
        return UnixStream::connect(socket);
    }
    // The working directory belongs to the whole process; a descriptor has a short path as well.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, directory, flags, Mode::empty())?;
    let number = directory.as_raw_fd().to_string();
    UnixStream::connect(Path::new("/proc/self/fd").join(number).join(name))
}

/// The byte with which a collector answers, between two deletions: one of those may be a large
/// tree.
fn read_answer(stream: &mut UnixStream, patience: &Patience) -> io::Result<u8> {
    let began = Instant::now();
    let mut is_said = false;
    let mut answer = [0];
    loop {
        match stream.read_exact(&mut answer) {
            Ok(()) => return Ok(answer[0]),
            Err(error) if is_late(&error) && began.elapsed() < LOCK_WAIT => {
                if patience.check().is_err() {
                    return Err(error);
                }
                if began.elapsed() >= SILENCE && !std::mem::replace(&mut is_said, true) {
                    patience.say(COLLECTOR);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether nothing has arrived within the time that a read waits.
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}

/// What the system takes as the address of a socket: 108 bytes, the last of which is NUL.
const SOCKET_PATH_LEN_MAX: usize = 107;

/// Distinguishes the files of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Whom a user waits for.
const COLLECTOR: &str = "the garbage collector";

#[cfg(test)]
mod tests {
    use super::*;
    use floe_format::StoreDir;

    #[test]
    fn roots_are_full_paths_ended_by_nul_and_go_away_with_the_writer() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.state.join("temproots")).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let mut first = RootsFile::create(&layout).unwrap();
        let second = RootsFile::create(&layout).unwrap();
        assert_ne!(first.path, second.path);
        first
            .add([&path].into_iter(), &Patience::default())
            .unwrap();
        let text = fs::read(&first.path).unwrap();
        assert_eq!(text, b"/nix/store/00000000000000000000000000000000-a\0");
        let file = first.path.clone();
        drop(first);
        assert!(!file.exists());
        assert!(second.path.exists());
    }

    #[test]
    fn writers_with_the_same_roots_share_a_file_for_each_store() {
        let scratch = tempfile::tempdir().unwrap();
        let layout = |name: &str| {
            let layout = Layout::in_root(&scratch.path().join(name), StoreDir::default());
            fs::create_dir_all(layout.state.join("temproots")).unwrap();
            layout
        };
        let (one, other) = (layout("one"), layout("other"));
        let files = || fs::read_dir(one.state.join("temproots")).unwrap().count();
        let roots = TempRoots::default();
        let first = roots.of(&one).unwrap();
        let second = roots.clone().of(&one).unwrap();
        let elsewhere = roots.of(&other).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &elsewhere));
        assert_eq!(files(), 1);
        drop(first);
        assert_eq!(files(), 1, "given up while it was needed");
        drop(second);
        assert_eq!(files(), 0);
        let again = roots.of(&one).unwrap();
        let another_user = TempRoots::default().of(&one).unwrap();
        assert_eq!(files(), 2);
        drop((again, another_user));
    }
}
