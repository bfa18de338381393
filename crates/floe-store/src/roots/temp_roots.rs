//! Temporary roots: paths that this process will use and that no collector may delete.
//!
//! The order is Nix's (gc.cc): add the root first, query the database afterwards. A collector that
//! is already running does not read the files again. floe sends it new roots over its socket and
//! waits for its reply.
//!
//! Not guaranteed: that a path which was valid when a collector replied stays valid. Collectors
//! before Nix 2.36 do not read their roots again between the search for garbage and the deletion.
//! Registration therefore checks the references of a path again. A caller that relies on any other
//! path waits for the end of the collection ([`crate::StoreWriter::wait_for_gc`]).
//!
//! A roots file also names the trees of its run, for recovery after a crash. Every collection
//! begins with the removal of the files of dead runs, also one that ends before it deletes the
//! trees. The file therefore has a second name in the directory of the database, the *run record*.

mod gc_socket;
mod program_root;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use floe_format::StorePath;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;

use crate::disk::{Directory, Entry, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::locks::{GcLock, LockWait, try_lock};
use crate::tree::TemporaryTree;
use gc_socket::GcSocket;
pub use program_root::ProgramRoot;

/// The temporary roots that several writers share: one file for each store while a writer is open.
/// Clones share the same files. Two independent users in one process create one value each.
#[derive(Clone, Debug, Default)]
pub struct TempRoots(Arc<Mutex<HashMap<PathBuf, Weak<SharedTempRoots>>>>);

impl TempRoots {
    /// Opens the file for a store and creates it if there is none.
    pub(crate) fn open(&self, layout: &StoreLayout) -> Result<Arc<SharedTempRoots>, StoreError> {
        let mut stores = self.0.lock();
        if let Some(roots) = stores.get(&layout.state_dir).and_then(Weak::upgrade) {
            return Ok(roots);
        }
        let roots = Arc::new(SharedTempRoots {
            file: Mutex::new(TempRootsFile::create(layout)?),
            recovered: Mutex::default(),
        });
        stores.retain(|_, roots| roots.strong_count() > 0);
        stores.insert(layout.state_dir.clone(), Arc::downgrade(&roots));
        Ok(roots)
    }
}

/// The state that all writers with the same [`TempRoots`] share for one store.
#[derive(Debug)]
pub(crate) struct SharedTempRoots {
    pub(crate) file: Mutex<TempRootsFile>,
    /// Sealed trees that earlier runs left behind.
    pub(crate) recovered: Mutex<HashMap<StorePath, Vec<TemporaryTree>>>,
}

impl Drop for SharedTempRoots {
    fn drop(&mut self) {
        // The file names the paths of the trees, so it must stay as long as the trees.
        let trees = std::mem::take(&mut *self.recovered.lock());
        self.file.lock().is_kept = !trees.is_empty();
        trees
            .into_values()
            .flatten()
            .for_each(TemporaryTree::detach);
    }
}

/// Whether the name of a temporary roots file shows that floe made it: `<pid>-floe-<n>`.
pub(crate) fn is_floe_roots_file(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.split_once("-floe-")
        .is_some_and(|(process, number)| is_number(process) && is_number(number))
}

/// A file of temporary roots. Dropping it releases the roots, unless the file must be kept.
#[derive(Debug)]
pub(crate) struct TempRootsFile {
    file: File,
    directory: Directory,
    name: OsString,
    /// The directory of the run record, if this file has one. It has the same name.
    record: Option<Directory>,
    gc_lock: GcLock,
    gc_socket: GcSocket,
    /// The number of the last time that floe sent roots to a collector, unless it has seen the end
    /// of that collection.
    gc_notified: Option<u64>,
    /// How often floe has sent roots to collectors.
    notifications: u64,
    is_kept: bool,
    layout: StoreLayout,
}

impl TempRootsFile {
    /// Creates the file `temproots/<pid>-floe-<n>`. Nix removes a file named by the bare process
    /// number as a stale file of its own. It reads the process number from the front of any other
    /// name, so this name works as well.
    pub(crate) fn create(layout: &StoreLayout) -> Result<TempRootsFile, StoreError> {
        TempRootsFile::create_of_kind(layout, "floe", true)
    }

    fn create_of_kind(
        layout: &StoreLayout,
        kind: &str,
        has_record: bool,
    ) -> Result<TempRootsFile, StoreError> {
        let gc_lock = GcLock::open(layout)?;
        let directory = Directory::open(&layout.temp_roots_dir())?;
        let record = has_record.then(|| Directory::open(&layout.database_dir()));
        let record = record.transpose()?;
        loop {
            let number = SERIAL.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!("{}-{kind}-{number}", std::process::id()));
            let entry = directory.entry(&name);
            let file = match entry.create_file() {
                // A dead process left the file, which may still name trees for recovery. Or another
                // user has put it there.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file.io_context("create the temporary roots file", entry.path())?,
            };
            let operation = FlockOperation::NonBlockingLockExclusive;
            if !try_lock(&file, &entry.path(), operation)? {
                continue;
            }
            // Another process may have found the file before it was locked, and have taken it for a
            // stale file: a collector then unlinks it and writes a mark into it, and a recovering
            // process unlinks it.
            let found = file.metadata().io_context("examine", entry.path())?;
            let is_own = found.size() == 0 && found.nlink() == 1;
            let record_entry = record.as_ref().map(|record| record.entry(&name));
            if is_own && record_entry.is_none_or(|record| add_record(&entry, &record)) {
                return Ok(TempRootsFile {
                    file,
                    gc_lock,
                    gc_socket: GcSocket::new(layout),
                    gc_notified: None,
                    notifications: 0,
                    is_kept: false,
                    layout: layout.clone(),
                    directory,
                    name,
                    record,
                });
            }
        }
    }

    /// The name of the file. No other live process uses it.
    pub(crate) fn name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }

    /// The path of the file.
    fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Protects paths from garbage collection until this value is dropped. Returns when a running
    /// collector, if any, has acknowledged them. A later collector reads them from the file.
    pub(crate) fn add<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a StorePath> + Clone,
        lock_wait: &LockWait,
    ) -> Result<(), StoreError> {
        // The file comes before the socket. Otherwise one collector could end, and the next one
        // could read the files, between the reply of the first and the write.
        self.append(paths.clone())?;
        let store_dir = &self.layout.store_dir;
        self.gc_lock.wait(lock_wait, || {
            // If the lock is free, no collection is running, and the next one reads the file.
            if self.gc_lock.is_free()? {
                self.gc_notified = None;
                return Ok(Some(()));
            }
            let socket = &mut self.gc_socket;
            let sent = socket.send_roots(store_dir, paths.clone(), lock_wait)?;
            if sent {
                self.notifications += 1;
                self.gc_notified = Some(self.notifications);
            }
            Ok(sent.then_some(()))
        })
    }

    /// Waits for the end of the collection to which floe sent roots. Paths that are valid
    /// afterwards stay valid. A wait that times out is not an error.
    pub(crate) fn wait_for_gc(&mut self, lock_wait: &LockWait) -> Result<(), StoreError> {
        if self.gc_notified.is_none() {
            return Ok(());
        }
        if self.gc_lock.wait_for_collector(lock_wait)? {
            self.gc_notified = None;
        }
        Ok(())
    }

    /// Returns the number of the last time that floe sent roots to a collector. None once floe has
    /// seen the end of that collection.
    pub(crate) fn notified_gc(&self) -> Option<u64> {
        self.gc_notified
    }

    /// Notes the end of a collection, unless roots were sent again since.
    pub(crate) fn forget_gc(&mut self, notified: u64) {
        if self.gc_notified == Some(notified) {
            self.gc_notified = None;
        }
    }

    /// Appends paths for later readers: collectors, and the run that recovers after a crash.
    pub(crate) fn append<'a>(
        &mut self,
        paths: impl Iterator<Item = &'a StorePath>,
    ) -> Result<(), StoreError> {
        let mut text = Vec::new();
        for path in paths {
            text.extend_from_slice(self.layout.store_dir.full_path(path).as_bytes());
            text.push(0);
        }
        let mut append = || {
            let end = self.file.seek(SeekFrom::End(0))?;
            let written = self.file.write_all(&text);
            if written.is_err() {
                // A collector would fail to parse half a path and miss the path after it.
                self.file.set_len(end)?;
            }
            written
        };
        append().io_context("write temporary roots to", self.path())
    }
}

impl Drop for TempRootsFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // The order is that of recovery.
            for directory in [Some(&self.directory), self.record.as_ref()]
                .into_iter()
                .flatten()
            {
                let _: io::Result<()> = directory.entry(&self.name).remove();
            }
        }
    }
}

/// Adds the run record of a new roots file. Returns `false`, and removes the file, if the record of
/// a dead run has this name: the name also occurs in the names of its trees. A file system without
/// hard links has no records, so a collection there makes recovery impossible.
fn add_record(file: &Entry<'_>, record: &Entry<'_>) -> bool {
    match file.hard_link(record) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let _: io::Result<()> = file.remove();
            false
        }
        _ => true,
    }
}

/// Distinguishes the files of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::fs;

    use floe_format::StoreDir;

    use super::*;

    #[test]
    fn roots_file_holds_nul_terminated_paths_until_drop() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.temp_roots_dir()).unwrap();
        fs::create_dir_all(layout.database_dir()).unwrap();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let mut first = TempRootsFile::create(&layout).unwrap();
        let second = TempRootsFile::create(&layout).unwrap();
        assert_ne!(first.path(), second.path());
        first
            .add([&path].into_iter(), &LockWait::default())
            .unwrap();
        let text = fs::read(first.path()).unwrap();
        assert_eq!(text, b"/nix/store/00000000000000000000000000000000-a\0");
        let record = |file: &TempRootsFile| layout.database_dir().join(&file.name);
        let names = [first.path(), record(&first)];
        assert!(names.iter().all(|name| name.exists()));
        drop(first);
        assert!(!names.iter().any(|name| name.exists()));
        assert!(second.path().exists() && record(&second).exists());
    }

    #[test]
    fn roots_file_avoids_name_of_record_of_dead_run() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        fs::create_dir_all(layout.temp_roots_dir()).unwrap();
        fs::create_dir_all(layout.database_dir()).unwrap();
        let next = SERIAL.load(Ordering::SeqCst);
        // Other tests of this process may use some of these numbers.
        let names: Vec<String> = (next..next + 100)
            .map(|number| format!("{}-floe-{number}", std::process::id()))
            .collect();
        for name in &names {
            fs::write(layout.database_dir().join(name), "").unwrap();
        }
        let roots = TempRootsFile::create(&layout).unwrap();
        assert!(!names.contains(&roots.name()));
        let files = fs::read_dir(layout.temp_roots_dir()).unwrap();
        assert_eq!(files.count(), 1);
    }

    #[test]
    fn shared_temp_roots_use_one_file_per_store() {
        let scratch = tempfile::tempdir().unwrap();
        let layout = |name: &str| {
            let layout = StoreLayout::in_root(&scratch.path().join(name), StoreDir::default());
            fs::create_dir_all(layout.temp_roots_dir()).unwrap();
            fs::create_dir_all(layout.database_dir()).unwrap();
            layout
        };
        let (one, other) = (layout("one"), layout("other"));
        let files = || {
            fs::read_dir(one.state_dir.join("temproots"))
                .unwrap()
                .count()
        };
        let roots = TempRoots::default();
        let first = roots.open(&one).unwrap();
        let second = roots.clone().open(&one).unwrap();
        let elsewhere = roots.open(&other).unwrap();
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &elsewhere));
        assert_eq!(files(), 1);
        drop(first);
        assert_eq!(files(), 1, "given up while it was needed");
        drop(second);
        assert_eq!(files(), 0);
        let again = roots.open(&one).unwrap();
        let another_user = TempRoots::default().open(&one).unwrap();
        assert_eq!(files(), 2);
        drop((again, another_user));
    }
}
