//! A store that is read while other processes write to it.
//!
//! A [`LiveStore`] reads the newest commit at each query. It reports at low cost whether the
//! database may have changed, and notices when another file replaces the database file.
//!
//! Nothing here may open the database file except through SQLite: a process that closes any
//! descriptor of a file loses all its POSIX locks on that file.

mod file_watch;
mod hash_part_index;
mod key_set;

pub use hash_part_index::{HashPartIndex, IndexCursor, IndexDelta};

use std::cell::{Cell, RefCell, RefMut};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{DrvOutput, HashPart, PathInfo, Realisation, StorePath};

use crate::db::{AccessMode, BusyPolicy, DamagedRow, Database, PathTotals};
use crate::disk::StoreLayout;
use crate::error::StoreError;
use file_watch::{Change, FileIdentity, FileWatch};

/// A store that is read while other processes write to it. Never writes. Each thread needs one of
/// its own.
#[derive(Debug)]
pub struct LiveStore {
    layout: StoreLayout,
    busy_timeout: Duration,
    /// `None` after the database could not be opened again, until a later attempt succeeds.
    open: RefCell<Option<OpenDatabase>>,
    generation: Cell<u64>,
    reopenings: Cell<u64>,
}

/// An open database and its state at the last check.
#[derive(Debug)]
struct OpenDatabase {
    database: Database,
    access: AccessMode,
    watch: FileWatch,
    data_version: i64,
    /// The time of the last check of the file system.
    polled_at: Option<Instant>,
}

impl LiveStore {
    /// Opens an existing store. `busy_timeout` is the time that a query waits while a writer has
    /// locked the whole database. It may be zero; the query then fails with an error for which
    /// [`StoreError::is_busy`] returns true. Without a write-ahead log, readers lock out each other
    /// as well.
    ///
    /// Errors: [`StoreError::NoStore`], [`StoreError::Schema`], and those of the system and of
    /// SQLite.
    pub fn open(layout: StoreLayout, busy_timeout: Duration) -> Result<LiveStore, StoreError> {
        let open = OpenDatabase::new(&layout, busy_timeout)?;
        Ok(LiveStore {
            layout,
            busy_timeout,
            open: RefCell::new(Some(open)),
            generation: Cell::new(1),
            reopenings: Cell::new(0),
        })
    }

    /// Sets the time that a query waits.
    ///
    /// Errors: those of SQLite.
    pub fn set_busy_timeout(&mut self, busy_timeout: Duration) -> Result<(), StoreError> {
        self.busy_timeout = busy_timeout;
        match self.open.get_mut() {
            Some(open) => open.database.set_busy_timeout(busy_timeout),
            None => Ok(()),
        }
    }

    /// The directories of the store.
    pub fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// Returns the generation: a number that increases whenever the database may have changed since
    /// the last call.
    ///
    /// A caller that keeps the results of queries asks for the generation first: a result is at
    /// least as new as the generation before it. Two changes are noticed within 100 ms: changes of
    /// a database that is read without locks, and a replaced database file.
    ///
    /// Errors: the database could not be read or opened again. The next call tries again.
    pub fn generation(&mut self) -> Result<u64, StoreError> {
        let slot = self.open.get_mut();
        match slot.as_mut().map(OpenDatabase::changed) {
            Some(Ok(Change::None)) => return Ok(self.generation.get()),
            Some(Ok(Change::Contents)) => {}
            Some(Err(error)) if error.is_busy() => return Err(error),
            // Opening the database again either succeeds or reports the error.
            Some(Ok(Change::File) | Err(_)) | None => {
                *slot = None;
                *slot = Some(OpenDatabase::new(&self.layout, self.busy_timeout)?);
                self.reopenings.set(self.reopenings.get() + 1);
            }
        }
        self.generation.set(self.generation.get() + 1);
        Ok(self.generation.get())
    }

    /// Returns how often the database was opened again, because its file was replaced or could not
    /// be read.
    pub fn reopenings(&self) -> u64 {
        self.reopenings.get()
    }

    /// Makes the next [`LiveStore::generation`] check the file system, even if the last check is
    /// recent. For use after another thread has noticed a change.
    pub fn force_recheck(&mut self) {
        if let Some(open) = self.open.get_mut() {
            open.polled_at = None;
        }
    }

    /// Returns the registered information about the path with this hash part, or `None` if no such
    /// path is valid.
    pub fn path_info_from_hash_part(&self, part: HashPart) -> Result<Option<PathInfo>, StoreError> {
        self.query(|database| database.path_info_from_hash_part(part))
    }

    /// Returns the registered information about a path, or `None` if the path is not valid.
    pub fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        self.query(|database| database.path_info(path))
    }

    /// Returns the realisation of an output. Nix writes it if `ca-derivations` is enabled.
    pub fn realisation(&self, id: &DrvOutput) -> Result<Option<Realisation>, StoreError> {
        self.query(|database| database.realisation(id))
    }

    /// Returns the totals of all valid paths.
    pub fn totals(&self) -> Result<PathTotals, StoreError> {
        self.query(Database::totals)
    }

    /// Returns the totals of the closure of a path.
    pub fn closure_totals(&self, path: &StorePath) -> Result<PathTotals, StoreError> {
        self.query(|database| database.closure_totals(path))
    }

    /// Returns the number of other paths that refer to a path, and the first `max` of them, sorted.
    pub fn first_referrers(
        &self,
        path: &StorePath,
        max: usize,
    ) -> Result<(u64, Vec<StorePath>), StoreError> {
        self.query(|database| database.first_referrers(path, max))
    }

    /// Returns up to `max` valid paths whose base names have a text, in any case of its letters,
    /// sorted by their base names.
    pub fn find_paths(&self, text: &str, max: usize) -> Result<Vec<StorePath>, StoreError> {
        self.query(|database| database.find_paths(text, max))
    }

    /// Returns the rows that an index has left out, because their paths do not parse.
    pub fn skipped_rows(&self) -> Vec<DamagedRow> {
        let open = self.open.borrow();
        let rows = open.as_ref().map(|open| open.database.skipped_rows());
        rows.unwrap_or_default()
    }

    /// The identity of the database file.
    fn identity(&self) -> Result<FileIdentity, StoreError> {
        Ok(self.open_database()?.watch.identity().clone())
    }

    /// Runs a query. If the database is read without locks, a result counts only if no process
    /// wrote meanwhile. After an error of SQLite, the query runs again on a newly opened file,
    /// because the file may have been replaced.
    fn query<T>(
        &self,
        query: impl Fn(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let start = Instant::now();
        let mut is_first = true;
        loop {
            let mut open = self.open_database()?;
            let result = query(&open.database);
            let changed =
                open.access == AccessMode::Immutable && open.watch.poll()? != Change::None;
            let failed = matches!(&result, Err(error @ StoreError::Database { .. })
                if !error.is_busy());
            drop(open);
            if changed || failed {
                self.open.replace(None);
            }
            if !(changed || failed && is_first) {
                return result;
            }
            if !is_first {
                if start.elapsed() >= self.busy_timeout {
                    let file = self.layout.database_dir().join("db.sqlite");
                    return Err(StoreError::DatabaseChanged(file));
                }
                thread::sleep(RETRY_INTERVAL);
            }
            is_first = false;
        }
    }

    /// Returns the open database, and opens it again if it was closed.
    fn open_database(&self) -> Result<RefMut<'_, OpenDatabase>, StoreError> {
        let mut slot = self.open.borrow_mut();
        if slot.is_none() {
            *slot = Some(OpenDatabase::new(&self.layout, self.busy_timeout)?);
            self.generation.set(self.generation.get() + 1);
            self.reopenings.set(self.reopenings.get() + 1);
        }
        Ok(RefMut::map(slot, |open| {
            open.as_mut().expect("it was filled above")
        }))
    }
}

impl OpenDatabase {
    fn new(layout: &StoreLayout, busy_timeout: Duration) -> Result<OpenDatabase, StoreError> {
        let file = layout.database_dir().join("db.sqlite");
        // The versions are read before the opening. If the file is replaced in between, the next
        // check opens it once more. The other order could miss the replacement.
        let mut watch = FileWatch::before_open(&file)?;
        let policy = BusyPolicy::Timeout(busy_timeout);
        let (database, access) = Database::open_for_reading(layout, policy)?;
        let data_version = match access {
            AccessMode::Wal => database.data_version()?,
            AccessMode::LockDirectory | AccessMode::Immutable => 0,
        };
        watch.set_access(access)?;
        Ok(OpenDatabase {
            database,
            access,
            watch,
            data_version,
            polled_at: Some(Instant::now()),
        })
    }

    fn changed(&mut self) -> Result<Change, StoreError> {
        // With a lock directory, a query of `data_version` would create and remove that directory,
        // and would fail while another process holds it. The file times give the same information.
        let always = self.access == AccessMode::LockDirectory;
        let is_overdue = |polled_at: Instant| polled_at.elapsed() >= FILE_POLL_INTERVAL;
        let is_due = self.polled_at.is_none_or(is_overdue);
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

/// The interval between two checks whether the database file was replaced. It is short enough that
/// a client sees a newly installed path at once, and long enough that the checks cost nothing.
const FILE_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The pause before a query on a database without locks runs again. Short beside the time of a
/// commit.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
