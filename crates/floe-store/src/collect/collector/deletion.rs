//! Deletes dead paths while other processes use the store.
//!
//! 1. The collector takes the next dead paths, referrers first. Under the mutex of the received
//!    roots, it leaves out those that new roots keep, and marks the others as being deleted.
//! 2. One transaction deletes their rows. A path that has a new referrer stays.
//! 3. Workers remove the files, one path at a time each. A process that sends a root for such a
//!    path waits until its files are gone, and then finds the path missing.
//!
//! A path that is kept therefore keeps all of its references: they come later in the order, and
//! step 1 marks them before it takes them. Unless `fsync-metadata` is off, the rows reach the disk
//! before the files are removed, so that a power cut leaves no row without files.
//!
//! On a full disk, a transaction may not fit. Then the collector waits for the files of the earlier
//! batches, which frees space, and tries a smaller batch. It ends only if a single path does not
//! fit, for example because another process reads the database, which keeps the log of all changes.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::iter::Peekable;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{thread, vec};

use floe_format::{HashPart, StorePath};
use parking_lot::Mutex;

use super::garbage::{DeadPaths, UnregisteredFile, lock_unused_directory};
use super::path_graph::{PathGraph, PathNumber, index};
use super::received_roots::ReceivedRoots;
use super::{DeleteFailure, GcResults};
use crate::db::Database;
use crate::disk::StoreLayout;
use crate::error::StoreError;
use crate::progress::Progress;
use crate::tree::links::remove_unused_links;
use crate::tree::remove_and_count;

/// The deletion of dead paths.
pub(super) struct Deletion<'a> {
    pub(super) database: &'a Database,
    pub(super) remover: Remover<'a>,
    /// The collection ends after the deletion that frees more bytes than this.
    pub(super) max_freed: Option<u64>,
}

/// Removes files, on several threads.
pub(super) struct Remover<'a> {
    pub(super) layout: &'a StoreLayout,
    /// The store directory.
    pub(super) directory: BorrowedFd<'a>,
    pub(super) roots: &'a ReceivedRoots,
    pub(super) progress: &'a dyn Progress,
    pub(super) results: &'a Mutex<GcResults>,
    /// Whether files stayed because the caller has ended the collection.
    pub(super) has_skipped: AtomicBool,
}

/// A file of the store directory in deletion.
struct DeadEntry {
    name: CString,
    hash_part: Option<HashPart>,
    /// The size that is known before the deletion, in bytes.
    expected_bytes: u64,
}

/// The paths that are still to be deleted.
struct Remaining {
    graph: PathGraph,
    is_live: Vec<bool>,
    valid: VecDeque<PathNumber>,
    unregistered: Peekable<vec::IntoIter<UnregisteredFile>>,
    /// Whether files without rows come before valid paths, because they need no transaction.
    takes_unregistered_first: bool,
}

/// The amount of the next batch.
#[derive(Clone, Copy)]
struct BatchLimit {
    paths: usize,
    bytes: u64,
}

/// The number of paths of the next batch. It grows, unless the disk is full.
struct BatchSize {
    paths: usize,
    /// Whether a batch did not fit on the disk.
    was_too_large: bool,
    /// How often in a row a single path did not fit.
    attempts: u32,
}

impl Deletion<'_> {
    /// Deletes the paths, unless they become live.
    ///
    /// Errors: those of the database, and [`StoreError::Interrupted`]. The results have files that
    /// could not be removed.
    pub(super) fn run(&self, dead: DeadPaths) -> Result<(), StoreError> {
        let mut remaining = Remaining {
            graph: dead.graph,
            is_live: dead.is_live,
            valid: dead.valid.into(),
            unregistered: dead.unregistered.into_iter().peekable(),
            takes_unregistered_first: false,
        };
        let (send, receive) = sync_channel(QUEUE_LEN);
        let receive = Mutex::new(receive);
        let remover = &self.remover;
        thread::scope(|scope| {
            let mut has_workers = false;
            for _ in 0..thread::available_parallelism().map_or(1, NonZeroUsize::get) {
                let remove = || remover.remove_entries(&receive);
                // The system may allow only some threads, or none.
                has_workers |= thread::Builder::new().spawn_scoped(scope, remove).is_ok();
            }
            // The workers end when the sender is dropped.
            let send = has_workers.then_some(send);
            self.delete_batches(&mut remaining, send.as_ref())
        })?;
        if self.remover.has_skipped.load(Ordering::Relaxed) {
            Err(StoreError::Interrupted)
        } else {
            Ok(())
        }
    }

    fn delete_batches(
        &self,
        remaining: &mut Remaining,
        send: Option<&SyncSender<DeadEntry>>,
    ) -> Result<(), StoreError> {
        let mut size = BatchSize::first();
        while !self.is_limit_reached() {
            let limit = BatchLimit {
                paths: size.paths,
                bytes: self.bytes_left().min(BATCH_BYTES),
            };
            let batch = match self.next_batch(remaining, limit) {
                Ok(batch) => batch,
                Err(error) => {
                    self.make_room(remaining, &mut size, error)?;
                    continue;
                }
            };
            if batch.is_empty() && remaining.is_empty() {
                return Ok(());
            }
            for entry in batch {
                match send {
                    // The workers end only after this loop.
                    Some(send) => _ = send.send(entry),
                    None => self.remover.remove_entry(&entry),
                }
            }
            if self.max_freed.is_some() {
                self.remover.roots.wait_for_deletions();
            }
            size.grow();
            if !self.remover.progress.should_continue() {
                return Err(StoreError::Interrupted);
            }
        }
        Ok(())
    }

    /// Makes room after a transaction that did not fit on the disk, so that the caller tries again.
    ///
    /// Errors: returns `error` if it has another cause, or if nothing can be done.
    fn make_room(
        &self,
        remaining: &mut Remaining,
        size: &mut BatchSize,
        error: StoreError,
    ) -> Result<(), StoreError> {
        if !error.is_out_of_space() {
            return Err(error);
        }
        let remover = &self.remover;
        if !remover.progress.should_continue() {
            return Err(StoreError::Interrupted);
        }
        // The files of the earlier batches occupy space until they are gone.
        remover.roots.wait_for_deletions();
        match size.shrink() {
            0 => Ok(()),
            1 => {
                remaining.takes_unregistered_first = true;
                // The contents of deleted paths stay as long as `.links` has them.
                if let Ok(links) = remove_unused_links(&remover.layout.links_dir()) {
                    remover.results.lock().links += links.removed;
                }
                Ok(())
            }
            // Another process may read the database only for a moment.
            attempts if attempts < ATTEMPTS_MAX && !self.database.truncate_log() => Ok(()),
            _ => Err(error.into_no_space_to_collect(self.database.log_readers())),
        }
    }

    /// The number of bytes that may still be freed.
    fn bytes_left(&self) -> u64 {
        let freed = self.remover.bytes_freed();
        self.max_freed
            .map_or(u64::MAX, |limit| limit.saturating_sub(freed))
    }

    fn is_limit_reached(&self) -> bool {
        let freed = self.remover.bytes_freed();
        self.max_freed.is_some_and(|limit| freed > limit)
    }

    /// Deletes the rows of the next paths and returns their files.
    fn next_batch(
        &self,
        remaining: &mut Remaining,
        limit: BatchLimit,
    ) -> Result<Vec<DeadEntry>, StoreError> {
        let valid = if remaining.takes_unregistered_first && remaining.has_unregistered() {
            Vec::new()
        } else {
            self.take_valid(remaining, limit)
        };
        if valid.is_empty() {
            return self.next_unregistered(remaining, limit);
        }
        let rows: Vec<(i64, &StorePath)> = valid
            .iter()
            .map(|number| {
                let row = remaining.graph.row(*number);
                (row.row, &row.path)
            })
            .collect();
        let roots = self.remover.roots;
        let deleted = self.database.delete(&rows);
        if deleted.is_err() {
            for (_, path) in &rows {
                roots.end_deletion(Some(path.hash_part()));
            }
            for number in valid.iter().rev() {
                remaining.valid.push_front(*number);
            }
        }
        let mut entries = Vec::new();
        for (number, is_removable) in valid.iter().zip(deleted?) {
            let row = remaining.graph.row(*number);
            if is_removable {
                entries.push(DeadEntry {
                    name: c_string(row.path.as_str().as_bytes()),
                    hash_part: Some(row.path.hash_part()),
                    expected_bytes: row.nar_size,
                });
            } else {
                roots.end_deletion(Some(row.path.hash_part()));
                remaining.graph.mark_live([*number], &mut remaining.is_live);
            }
        }
        Ok(entries)
    }

    /// Takes the next valid paths that are still dead, and marks them as being deleted.
    fn take_valid(&self, remaining: &mut Remaining, limit: BatchLimit) -> Vec<PathNumber> {
        let mut state = self.remover.roots.state.lock();
        remaining.mark_new_roots(&mut state.new);
        let (mut taken, mut bytes) = (Vec::new(), 0_u64);
        while taken.len() < limit.paths
            && bytes <= limit.bytes
            && let Some(number) = remaining.valid.pop_front()
        {
            if remaining.is_live[index(number)] {
                continue;
            }
            let row = remaining.graph.row(number);
            state.begin_deletion(Some(row.path.hash_part()));
            bytes = bytes.saturating_add(match row.nar_size {
                // The size is unknown, so that the next batch waits for it.
                0 if self.max_freed.is_some() => u64::MAX,
                size => size,
            });
            taken.push(number);
        }
        taken
    }

    /// Takes the next files that are not valid paths, and marks them as being deleted.
    fn next_unregistered(
        &self,
        remaining: &mut Remaining,
        limit: BatchLimit,
    ) -> Result<Vec<DeadEntry>, StoreError> {
        // The sizes are unknown, so with a limit each is measured before the next one.
        let count = match self.max_freed {
            Some(_) => 1,
            None => limit.paths,
        };
        let mut files = Vec::new();
        for file in remaining.unregistered.by_ref().take(count) {
            // Another process may have registered the path.
            let is_valid = |path| self.database.is_valid(path);
            if !file.path.as_ref().map_or(Ok(false), is_valid)? {
                files.push(file);
            }
        }
        let mut entries = Vec::new();
        let mut state = self.remover.roots.state.lock();
        for file in files {
            let hash_part = file.path.as_ref().map(StorePath::hash_part);
            if hash_part.is_some_and(|it| state.temporary.contains(&it)) {
                continue;
            }
            state.begin_deletion(hash_part);
            entries.push(DeadEntry {
                name: c_string(file.name.as_bytes()),
                hash_part,
                expected_bytes: 0,
            });
        }
        Ok(entries)
    }
}

impl Remover<'_> {
    fn bytes_freed(&self) -> u64 {
        self.results.lock().bytes_freed
    }

    /// Removes files until the collector has no more. After an interrupt the rest stays: the next
    /// collection deletes it.
    fn remove_entries(&self, receive: &Mutex<Receiver<DeadEntry>>) {
        loop {
            let received = receive.lock().recv();
            let Ok(entry) = received else {
                return;
            };
            self.remove_entry(&entry);
        }
    }

    fn remove_entry(&self, entry: &DeadEntry) {
        let in_deletion = InDeletion {
            roots: self.roots,
            hash_part: entry.hash_part,
        };
        if !self.progress.should_continue() {
            self.has_skipped.store(true, Ordering::Relaxed);
            return;
        }
        let name = OsStr::from_bytes(entry.name.to_bytes());
        self.remove(&entry.name, &self.layout.real_store_dir.join(name));
        // A process that waits for this deletion need not wait for the receiver of the progress.
        drop(in_deletion);
        self.progress.path_done(entry.expected_bytes);
    }

    fn remove(&self, name: &CStr, place: &Path) {
        let is_temporary = name.to_bytes().starts_with(b"tmp-");
        let _lock = match is_temporary.then(|| lock_unused_directory(place)) {
            // A process has begun to use it.
            Some(None) => return,
            lock => lock.flatten(),
        };
        let removed = remove_and_count(self.directory.as_fd(), name);
        let mut results = self.results.lock();
        let bytes = match removed {
            Ok(bytes) => {
                results.paths += 1;
                bytes
            }
            Err(error) => {
                results.failures.push(DeleteFailure {
                    path: place.to_path_buf(),
                    source: error.source,
                });
                error.bytes
            }
        };
        results.bytes_freed = results.bytes_freed.saturating_add(bytes);
    }
}

/// A deletion that has begun. It ends even if the thread panics, because others wait for its end.
struct InDeletion<'a> {
    roots: &'a ReceivedRoots,
    hash_part: Option<HashPart>,
}

impl Drop for InDeletion<'_> {
    fn drop(&mut self) {
        self.roots.end_deletion(self.hash_part);
    }
}

impl Remaining {
    fn is_empty(&mut self) -> bool {
        self.valid.is_empty() && !self.has_unregistered()
    }

    fn has_unregistered(&mut self) -> bool {
        self.unregistered.peek().is_some()
    }

    /// Marks the paths that new roots keep.
    fn mark_new_roots(&mut self, new: &mut Vec<HashPart>) {
        let known: Vec<PathNumber> = new
            .drain(..)
            .flat_map(|it| self.graph.numbers_of_hash_part(it))
            .collect();
        self.graph.mark_live(known, &mut self.is_live);
    }
}

impl BatchSize {
    fn first() -> BatchSize {
        BatchSize {
            paths: FIRST_BATCH_PATHS,
            was_too_large: false,
            attempts: 0,
        }
    }

    fn grow(&mut self) {
        let larger = if self.was_too_large {
            self.paths + self.paths.div_ceil(4)
        } else {
            self.paths * 4
        };
        self.paths = larger.min(BATCH_PATHS_MAX);
        self.attempts = 0;
    }

    /// Halves the size. Returns how often in a row a batch of a single path did not fit.
    fn shrink(&mut self) -> u32 {
        self.was_too_large = true;
        match self.paths {
            1 => self.attempts += 1,
            paths => self.paths = paths / 2,
        }
        self.attempts
    }
}

/// Names of files have no zero byte.
fn c_string(name: &[u8]) -> CString {
    CString::new(name).unwrap_or_default()
}

/// Small, so that a full disk soon has free space for larger transactions.
const FIRST_BATCH_PATHS: usize = 16;

/// How often a single path is tried while other processes read the database: for about two seconds,
/// because each attempt truncates the log three times and waits 63 ms each time.
const ATTEMPTS_MAX: u32 = 10;

/// A commit waits for the disk, so each has many paths.
const BATCH_PATHS_MAX: usize = 1024;

/// A process that sends a root waits for the deletion of at most two batches.
const BATCH_BYTES: u64 = 512 * 1024 * 1024;

/// One batch waits while the previous one is being removed.
const QUEUE_LEN: usize = BATCH_PATHS_MAX;
