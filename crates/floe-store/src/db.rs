//! The Nix database: one SQLite file per store, shared with every Nix that uses the store.
//!
//! Opens and creates databases as the newest Nix does (local-store.cc of Nix 2.36): schema 10, a
//! write-ahead log that stays after the last connection closes, foreign keys on. Nix versions
//! differ in some tables and in an index. floe accepts these differences and leaves them as they
//! are.

mod all_infos;
mod browse;
mod busy;
mod closure_references;
mod closure_rows;
mod copied;
mod damaged_rows;
mod health;
mod immutable;
mod lock_directory;
mod log;
mod open;
mod path_row;
mod read;
mod readers;
mod realisations;
mod rebuilt_rows;
mod repair_rows;
mod salvage;
mod tables;
mod vacuum;
mod write;

pub use browse::PathTotals;
pub(crate) use busy::BusyPolicy;
pub(crate) use closure_rows::{ClosureRow, ClosureRows};
pub use damaged_rows::{DamagedRow, Table};
pub(crate) use lock_directory::remove_stale_lock_directory;
pub(crate) use open::AccessMode;
pub(crate) use readers::find_users;
pub(crate) use tables::{MissingTables, has_no_trees};
pub use vacuum::DatabaseSpace;
pub(crate) use write::Registration;
pub use write::Signing;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, DEFAULT_NAME, FileControl, Statement};
use rustix::fs::{FlockOperation, Mode};

use crate::disk::{StoreLayout, WrittenFile};
use crate::error::{IoContext, SCHEMA_NUMBER, StoreError};
use crate::events::StoreEvents;
use crate::locks::{
    LockWait, LockWaitScope, is_interrupted, open_lock_file, try_lock, wait_for_database,
};
use damaged_rows::SkippedRows;
use tables::{SCHEMA, Tables, make_tables};

/// The options of a database that is opened for writing.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseOptions {
    /// Whether a new database keeps a write-ahead log.
    pub(crate) use_wal: bool,
    /// Whether the database survives a crash of the system.
    pub(crate) fsync: bool,
    pub(crate) missing: MissingTables,
    pub(crate) events: StoreEvents,
}

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    file: PathBuf,
    layout: StoreLayout,
    skipped_rows: SkippedRows,
    /// Held shared by a reader that may create the lock directory.
    _big_lock: Option<File>,
}

impl Database {
    /// Opens the database for writing. The state directory must exist, and the caller must hold
    /// `db/big-lock` shared.
    ///
    /// Errors: [`StoreError::Schema`], [`StoreError::NoTables`], [`StoreError::ForeignDatabase`],
    /// and those of the system and of SQLite.
    pub(crate) fn open_writable(
        layout: &StoreLayout,
        options: &DatabaseOptions,
    ) -> Result<Database, StoreError> {
        let is_new = !check_schema(layout)?;
        let file = layout.database_dir().join("db.sqlite");
        if is_new {
            // SQLite would let the umask decide which users may read the database and its log.
            create_world_readable(&file)?;
        }
        let mut connection = open::for_writing(&file, is_new, options.use_wal)
            .map_err(|source| database_error("open", &file, source))?;
        let has_tables = retry_while_busy(is_new, || prepare(&mut connection, is_new, options))
            .map_err(|source| database_error("prepare", &file, source))?;
        if !has_tables {
            make_tables(layout, &connection, &file, is_new, options)?;
        }
        if is_new {
            write_schema(layout)?;
        }
        let database = Database {
            connection,
            file,
            layout: layout.clone(),
            skipped_rows: SkippedRows::default(),
            _big_lock: None,
        };
        database.limit_log();
        Ok(database)
    }

    /// Opens an existing database for reading, and returns the way in which it is read. If this
    /// user may not create the side files of the write-ahead log, the file is read without locks.
    pub(crate) fn open_for_reading(
        layout: &StoreLayout,
        policy: BusyPolicy,
    ) -> Result<(Database, AccessMode), StoreError> {
        let file = layout.database_dir().join("db.sqlite");
        let found = file.try_exists();
        if let Err(error) = &found
            && error.kind() == ErrorKind::PermissionDenied
        {
            // A store may be there.
            found.io_context("find the database", &file)?;
        } else if !found.unwrap_or(false) {
            return Err(StoreError::NoStore {
                path: layout.real_store_dir.clone(),
                database: file,
            });
        }
        check_schema(layout)?;
        let opened = open::for_reading(&file, policy).or_else(|error| {
            // A crash has left a journal that only a writer may roll back.
            if is_read_only(&error) && recover_unused(layout, &file) {
                open::for_reading(&file, policy)
            } else {
                Err(error)
            }
        });
        let (opened, tables) = opened.map_err(|source| database_error("open", &file, source))?;
        match tables {
            Tables::OfNix => {}
            Tables::None => return Err(StoreError::NoTables { database: file }),
            Tables::Foreign => return Err(StoreError::ForeignDatabase(file)),
        }
        let database = Database {
            connection: opened.connection,
            file,
            layout: layout.clone(),
            skipped_rows: SkippedRows::default(),
            _big_lock: opened.big_lock,
        };
        Ok((database, opened.access))
    }

    /// Returns the database of an empty store, which is in memory.
    pub(crate) fn empty(layout: &StoreLayout) -> Result<Database, StoreError> {
        let file = layout.database_dir().join("db.sqlite");
        let open = || {
            let connection = Connection::open_in_memory()?;
            connection.execute_batch(SCHEMA)?;
            Ok(connection)
        };
        let opened: rusqlite::Result<Connection> = open();
        Ok(Database {
            connection: opened.map_err(|source| database_error("open", &file, source))?,
            file,
            layout: layout.clone(),
            skipped_rows: SkippedRows::default(),
            _big_lock: None,
        })
    }

    /// The directories of the store.
    pub(crate) fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    /// Records a reference of a row that does not exist. `row` is its own number in its table.
    pub(crate) fn record_dangling_reference(&self, row: i64, referrer: Option<i64>) {
        self.skipped_rows
            .record(DamagedRow::dangling_reference(row, referrer));
    }

    /// Records a reference of a valid path to a row that does not exist or does not parse. `row` is
    /// its own number in its table.
    pub(crate) fn record_lost_reference(&self, row: i64, path: &StorePath, reference: Option<i64>) {
        let text = self.layout.store_dir.full_path(path);
        self.skipped_rows
            .record(DamagedRow::lost_reference(row, text, path, reference));
    }

    /// Returns the rows that queries for many rows have left out until now.
    pub(crate) fn skipped_rows(&self) -> Vec<DamagedRow> {
        self.skipped_rows.all()
    }

    /// Sets how long a query waits while another process has locked the database.
    pub(crate) fn set_busy_timeout(&self, busy_timeout: Duration) -> Result<(), StoreError> {
        open::set_busy_timeout(&self.connection, busy_timeout)
            .map_err(|source| database_error("prepare", &self.file, source))
    }

    /// Makes each transaction of this connection wait until it is on disk.
    pub(crate) fn sync_each_commit(&self) -> Result<(), StoreError> {
        let set = self.connection.pragma_update(None, "synchronous", "full");
        set.map_err(|source| database_error("prepare", &self.file, source))
    }

    /// Returns a number that changes whenever another connection has changed the database.
    pub(crate) fn data_version(&self) -> Result<i64, StoreError> {
        self.query("look for changes of", "pragma data_version", |query| {
            query.query_row((), |row| row.get(0))
        })
    }

    /// Runs a cached statement.
    fn query<T>(
        &self,
        action: &'static str,
        text: &str,
        run: impl FnOnce(&mut Statement<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let statement = self.connection.prepare_cached(text);
        statement
            .and_then(|mut statement| run(&mut statement))
            .map_err(|source| database_error(action, &self.file, source))
    }
}

/// A locked database for one thread. Its queries wait for other processes as the owner's
/// [`LockWait`] says.
pub(crate) struct LockedDatabase<'a> {
    database: MutexGuard<'a, Database>,
    _scope: LockWaitScope,
}

impl LockedDatabase<'_> {
    pub(crate) fn lock<'a>(
        database: &'a Mutex<Database>,
        lock_wait: &LockWait,
    ) -> LockedDatabase<'a> {
        LockedDatabase {
            _scope: lock_wait.enter_scope(),
            // SQLite has rolled back a transaction that a panic interrupted, so the state is valid.
            database: database.lock(),
        }
    }
}

impl Deref for LockedDatabase<'_> {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

/// Distinguishes the temporary names of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Creates an empty file that all users may read, whatever the umask, unless the file exists.
fn create_world_readable(file: &Path) -> Result<(), StoreError> {
    let created = WrittenFile::create(file, WORLD_READABLE);
    match created.and_then(|made| made.complete(|made| made.set_mode(WORLD_READABLE.as_raw_mode())))
    {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created.io_context("create", file),
    }
}

/// Writes the schema file. The rename makes it appear complete: a process that finds an empty file
/// would not know the schema. Several writers may create the same store at once, also within this
/// process, so each uses a temporary name of its own.
pub(crate) fn write_schema(layout: &StoreLayout) -> Result<(), StoreError> {
    let file = schema_file(layout);
    let number = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = file.with_file_name(format!("schema-{}-{number}", std::process::id()));
    let written = write_schema_to(&temporary).io_context("write", &temporary);
    let written = written.and_then(|()| fs::rename(&temporary, &file).io_context("write", &file));
    if written.is_err() {
        // The first error is the one to report.
        let _: io::Result<()> = fs::remove_file(&temporary);
    }
    written
}

fn schema_file(layout: &StoreLayout) -> PathBuf {
    layout.database_dir().join("schema")
}

/// Writes a schema file that all users may read. Nix refuses a store whose schema file a power cut
/// has emptied, so the file is on disk when the function returns.
fn write_schema_to(file: &Path) -> io::Result<()> {
    WrittenFile::create(file, WORLD_READABLE)?.complete(|new| {
        new.set_mode(WORLD_READABLE.as_raw_mode())?;
        write!(new, "{SCHEMA_NUMBER}")?;
        new.as_file().sync_all()
    })
}

/// The mode of the files of a database, as in Nix.
const WORLD_READABLE: Mode = Mode::from_raw_mode(0o644);

/// Whether the schema file exists. Errors: its contents are not `10`.
pub(crate) fn check_schema(layout: &StoreLayout) -> Result<bool, StoreError> {
    let schema_file = schema_file(layout);
    match fs::read_to_string(&schema_file) {
        Ok(text) if text.trim().parse() == Ok(SCHEMA_NUMBER) => Ok(true),
        // An empty file remains if the disk was full when the store was created.
        Ok(text) if text.is_empty() => Ok(false),
        Ok(text) => Err(StoreError::Schema {
            path: schema_file,
            found: text.trim().into(),
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).io_context("read", schema_file),
    }
}

/// Repeats an attempt while another process disturbs the creation of the same database.
///
/// Two processes that create the same database disturb each other when they switch it to a
/// write-ahead log. SQLite then fails one of them at once and does not call the busy handler.
fn retry_while_busy<T>(
    is_new: bool,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_new && is_busy(&error) && began.elapsed() < CREATE_TIMEOUT => {
                if is_interrupted() {
                    return Err(error);
                }
                thread::sleep(CREATE_RETRY_INTERVAL);
            }
            done => return done,
        }
    }
}

fn is_read_only(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ReadOnly)
}

/// Recovers a database that no process writes: all writers hold the big lock shared. Returns
/// whether it succeeded.
fn recover_unused(layout: &StoreLayout, file: &Path) -> bool {
    let lock = layout.big_lock();
    let Ok(big_lock) = open_lock_file(&lock) else {
        return false;
    };
    let operation = FlockOperation::NonBlockingLockExclusive;
    let is_unused = try_lock(&big_lock, &lock, operation).unwrap_or(false);
    is_unused && open::recover(file).is_ok()
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
}

/// Applies Nix's settings of a connection. Returns whether it has the tables of an existing store.
fn prepare(
    connection: &mut Connection,
    is_new: bool,
    options: &DatabaseOptions,
) -> rusqlite::Result<bool> {
    connection.busy_handler(Some(wait_for_database))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    // With `normal`, a crash of the system may lose the newest rows but never the file. With `off`,
    // it may lose the whole database.
    let synchronous = if options.fsync { "normal" } else { "off" };
    connection.pragma_update(None, "synchronous", synchronous)?;
    // The directory of temporary files may be on the same full disk.
    connection.pragma_update(None, "temp_store", "memory")?;
    let use_wal = if is_new {
        options.use_wal
    } else {
        // A store that a Nix with use-sqlite-wal = false made stays in its mode: a change needs
        // exclusive access, and both modes work.
        open::journal_mode(connection)? == "wal"
    };
    if !use_wal {
        connection.pragma_update(None, "journal_mode", "truncate")?;
    } else {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "journal_size_limit", WAL_SIZE_LIMIT)?;
        connection.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
        // The files of the log stay, so that a user with read permission only can open the database
        // later.
        let mut keep = 1;
        connection.file_control(DEFAULT_NAME, FileControl::PersistWal(&mut keep))?;
    }
    Ok(!is_new && Tables::of(connection)? == Tables::OfNix)
}

fn database_error(action: &'static str, file: &Path, source: rusqlite::Error) -> StoreError {
    if is_busy(&source) && is_interrupted() {
        return StoreError::Interrupted;
    }
    let directory = lock_directory::lock_directory(file);
    if is_busy(&source) && directory.exists() {
        return StoreError::LockDirectory {
            action,
            path: file.to_path_buf(),
            directory,
        };
    }
    StoreError::Database {
        action,
        path: file.to_path_buf(),
        source: log::with_cause(source, file),
    }
}

/// The query for the row number of a path.
const PATH_ID: &str = "select id from ValidPaths where path = ?1";

/// The longest time for retries. Creating a database takes milliseconds, or a second on a slow
/// disk.
const CREATE_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two attempts to create a database.
const CREATE_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Nix's value: SQLite truncates the log on close and lets it grow up to a tebibyte before.
const WAL_SIZE_LIMIT: i64 = 1 << 40;

/// Nix's value, so that registering a whole system needs one sync.
const WAL_CHECKPOINT_PAGES: i64 = 40_000;

/// Whether this user may write a file, or create files in a directory.
pub(crate) fn may_write(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Whether a file is empty or missing.
fn is_empty(file: &Path) -> bool {
    fs::metadata(file).map_or(true, |metadata| metadata.len() == 0)
}

/// A file that SQLite keeps beside the database, such as `db.sqlite-wal`.
pub(crate) fn side_file(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests;
