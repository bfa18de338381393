//! A store that others write to while it is served.
//!
//! A [`LiveStore`] answers from the newest commit at every question, says cheaply whether
//! anything may have changed, and finds out when the database file itself becomes another one.
//!
//! Nothing here may open the database file but through SQLite: a process that closes any
//! descriptor of a file loses all locks that it has on it.

mod file_watch;
mod hash_part_index;
mod key_set;

pub use hash_part_index::{HashPartIndex, IndexCursor, IndexDelta};

use std::cell::{Cell, RefCell, RefMut};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{PathInfo, StorePath};

use crate::db::{AccessMode, BuildTrace, BusyPolicy, Database, Realisation};
use crate::error::StoreError;
use crate::layout::StoreLayout;
use file_watch::{Change, FileIdentity, FileWatch};

/// A store that is read beside those who write to it. One for each thread; never writes.
#[derive(Debug)]
pub struct LiveStore {
    layout: StoreLayout,
    busy_timeout: Duration,
    /// Empty after a failure to open the database again, until that succeeds.
    open: RefCell<Option<OpenDatabase>>,
    generation: Cell<u64>,
}

/// An open database, and what it was like then.
#[derive(Debug)]
struct OpenDatabase {
    database: Database,
    access: AccessMode,
    watch: FileWatch,
    data_version: i64,
    /// When the file system was asked.
    polled_at: Option<Instant>,
}

impl LiveStore {
    /// Opens an existing store. `busy_timeout` is how long a question waits for a writer that locks
    /// the whole database, and may be zero; then the question fails with an error for which
    /// [`StoreError::is_busy`] holds. Without a write-ahead log readers lock out each other too.
    ///
    /// Errors: [`StoreError::NoStore`], [`StoreError::Schema`], or what the system and SQLite say.
    pub fn open(layout: StoreLayout, busy_timeout: Duration) -> Result<LiveStore, StoreError> {
        let open = OpenDatabase::new(&layout, busy_timeout)?;
        Ok(LiveStore {
            layout,
            busy_timeout,
            open: RefCell::new(Some(open)),
            generation: Cell::new(1),
        })
    }

    /// Changes how long questions wait.
    ///
    /// Errors: SQLite refuses.
    pub fn set_busy_timeout(&mut self, busy_timeout: Duration) -> Result<(), StoreError> {
        self.busy_timeout = busy_timeout;
        match self.open.get_mut() {
            Some(open) => open.database.set_busy_timeout(busy_timeout),
            None => Ok(()),
        }
    }

    /// Where the store's parts are.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// A number that has gone up whenever the database may have changed since the last call.
    ///
    /// Ask for it before the questions whose answers are to be kept: an answer is at least as new
    /// as the generation before it. Changes of a database that this user may only read as it
    /// stands, and a database file that was replaced, are noticed within a tenth of a second.
    ///
    /// Errors: the database could not be read, or opened again; the next call tries again.
    pub fn generation(&mut self) -> Result<u64, StoreError> {
        let generation = &self.generation;
        let slot = self.open.get_mut();
        if let Some(open) = slot {
            match open.changed() {
                Ok(Change::None) => return Ok(generation.get()),
                Ok(Change::Contents) => {
                    generation.set(generation.get() + 1);
                    return Ok(generation.get());
                }
                Err(error) if error.is_busy() => return Err(error),
                // What cannot be read any more is opened again, which says what is wrong.
                Ok(Change::File) | Err(_) => *slot = None,
            }
        }
        *slot = Some(OpenDatabase::new(&self.layout, self.busy_timeout)?);
        generation.set(generation.get() + 1);
        Ok(generation.get())
    }

    /// Makes the next [`LiveStore::generation`] ask the file system whether the database is still
    /// the same file, however short ago it did: for when another thread has seen a change.
    pub fn force_recheck(&mut self) {
        if let Some(open) = self.open.get_mut() {
            open.polled_at = None;
        }
    }

    /// What the database knows of the path with that hash part; `None` if none is valid.
    pub fn path_info_from_hash_part(&self, part: &str) -> Result<Option<PathInfo>, StoreError> {
        self.query(|database| database.path_info_from_hash_part(part))
    }

    /// What the database knows of a path; `None` if it is not valid.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.query(|database| database.path_info(path))
    }

    /// What the output of a content-addressed derivation became, by the hash of the derivation,
    /// `sha256:…` in base 16. Written by Nix up to 2.34, with `ca-derivations` enabled.
    pub fn realisation(
        &self,
        drv_hash: &str,
        output: &str,
    ) -> Result<Option<Realisation>, StoreError> {
        self.query(|database| database.realisation(drv_hash, output))
    }

    /// What the output of a content-addressed derivation became, by the path of the derivation.
    /// Written by the newest Nix, with `ca-derivations` enabled.
    pub fn build_trace(
        &self,
        drv: &StorePath,
        output: &str,
    ) -> Result<Option<BuildTrace>, StoreError> {
        self.query(|database| database.build_trace(drv, output))
    }

    /// Which file is read.
    fn identity(&self) -> Result<FileIdentity, StoreError> {
        Ok(self.open_database()?.watch.identity().clone())
    }

    /// Asks a question. What was read without locks counts only if nobody has written meanwhile,
    /// and what SQLite fails at only if it still does so after the file was opened again.
    fn query<T>(
        &self,
        mut query: impl FnMut(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let start = Instant::now();
        let mut is_first = true;
        loop {
            let mut open = self.open_database()?;
            let result = query(&open.database);
            let changed =
                open.access == AccessMode::Immutable && open.watch.poll()? != Change::None;
            let failed = match &result {
                Err(error @ StoreError::Database { .. }) => !error.is_busy(),
                _ => false,
            };
            drop(open);
            if changed || failed {
                self.open.replace(None);
            }
            let may_differ = changed || (failed && is_first);
            if !may_differ {
                return result;
            }
            if !is_first && start.elapsed() >= self.busy_timeout {
                return Err(StoreError::DatabaseChanged {
                    path: self.layout.database_dir().join("db.sqlite"),
                });
            }
            if !is_first {
                thread::sleep(RETRY_INTERVAL);
            }
            is_first = false;
        }
    }

    /// The open database, which is opened again if it had to be closed.
    fn open_database(&self) -> Result<RefMut<'_, OpenDatabase>, StoreError> {
        let mut slot = self.open.borrow_mut();
        if slot.is_none() {
            *slot = Some(OpenDatabase::new(&self.layout, self.busy_timeout)?);
            self.generation.set(self.generation.get() + 1);
        }
        Ok(RefMut::map(slot, |open| {
            open.as_mut().expect("it was filled above")
        }))
    }
}

impl OpenDatabase {
    fn new(layout: &StoreLayout, busy_timeout: Duration) -> Result<OpenDatabase, StoreError> {
        let file = layout.database_dir().join("db.sqlite");
        // What is replaced while it is being opened is opened once too often, never not at all.
        let before = FileWatch::before_open(&file)?;
        let (database, access) =
            Database::open_for_reading(layout, BusyPolicy::Timeout(busy_timeout))?;
        let data_version = match access {
            AccessMode::Wal => database.data_version()?,
            AccessMode::LockDirectory | AccessMode::Immutable => 0,
        };
        Ok(OpenDatabase {
            database,
            access,
            watch: before.opened(access)?,
            data_version,
            polled_at: Some(Instant::now()),
        })
    }

    fn changed(&mut self) -> Result<Change, StoreError> {
        // With a lock directory, asking SQLite means to make and remove it, and to be refused
        // while anybody else has it; the times of the file say as much.
        let always = self.access == AccessMode::LockDirectory;
        let is_due = self
            .polled_at
            .is_none_or(|polled_at| polled_at.elapsed() >= FILE_POLL_INTERVAL);
        if always || is_due {
            let change = self.watch.poll()?;
            self.polled_at = Some(Instant::now());
            if change != Change::None {
                return Ok(change);
            }
        }
        if self.access == AccessMode::Wal {
            let version = self.database.data_version()?;
            if version != self.data_version {
                self.data_version = version;
                return self.watch.confirm_change();
            }
        }
        Ok(Change::None)
    }
}

/// How often the file system is asked whether the database is still the same file: often enough
/// that nobody waits for what was installed, and rarely enough to cost nothing.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Between looks at a database that cannot be locked and is being written to. Short beside what a
/// commit takes.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
