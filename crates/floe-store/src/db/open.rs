//! Opens the database file with the kind of locks that its writers use.
//!
//! A Nix with `use-sqlite-wal = false` locks with a directory beside the database, because its file
//! system may support no other locks. SQLite's usual locks and this directory do not see each
//! other. A process that uses the wrong kind would read, or roll back, data that another process is
//! writing.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use super::busy::{BusyPolicy, wait_until};
use super::copied::{SideFile, open_copy};
use super::immutable::open_immutable;
use super::lock_directory::{lock_directory, lock_shared, open_big_lock};
use super::tables::Tables;
use super::{is_empty, may_write, side_file};
use crate::locks::wait_for_database;

/// The way in which an open database is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    /// With a write-ahead log: readers and writers never wait for each other.
    Wal,
    /// With a lock directory, which one process holds at a time.
    LockDirectory,
    /// Without any locks, as a file that does not change, because this user may not create lock
    /// files.
    Immutable,
}

/// A database that is open for reading.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) access: AccessMode,
    /// The big lock, which a reader with a lock directory holds shared.
    pub(super) big_lock: Option<File>,
}

/// Opens a database for writing and creates the file if `is_new` is set.
///
/// `use_wal` selects the mode of a new database. An existing database keeps its mode, with one
/// exception: a write-ahead log ends if `use_wal` is false and no other process uses the log.
pub(super) fn for_writing(
    file: &Path,
    is_new: bool,
    use_wal: bool,
) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    check_locks(file)?;
    let with_lock_directory =
        |flags| Connection::open_with_flags_and_vfs(file, flags, LOCK_DIRECTORY_VFS);
    if is_new {
        let flags = flags | OpenFlags::SQLITE_OPEN_CREATE;
        return if use_wal {
            Connection::open_with_flags(file, flags)
        } else {
            with_lock_directory(flags)
        };
    }
    // A read-only connection finds out the kind of locks. With the wrong kind of locks, a writable
    // connection would roll back the journal of a running writer as if that writer were dead.
    let probe = Connection::open_with_flags(file, READ_FLAGS)?;
    if uses_lock_directory(&probe, file) {
        return with_lock_directory(flags);
    }
    drop(probe);
    let connection = Connection::open_with_flags(file, flags)?;
    if !use_wal && disable_wal(&connection) {
        drop(connection);
        return with_lock_directory(flags);
    }
    Ok(connection)
}

/// Ends the use of a write-ahead log, because a Nix with `use-sqlite-wal = false` cannot open a
/// database with one. Returns `false` if another process has the database open.
fn disable_wal(connection: &Connection) -> bool {
    let _: rusqlite::Result<()> = connection.busy_timeout(Duration::ZERO);
    let asked = connection.pragma_update(None, "journal_mode", "truncate");
    asked.is_ok() && journal_mode(connection).is_ok_and(|mode| mode != "wal")
}

/// Opens an existing database for reading, and examines its tables.
pub(super) fn for_reading(file: &Path, policy: BusyPolicy) -> rusqlite::Result<(Opened, Tables)> {
    let opened = try_for_reading(file, policy)?;
    let tables = Tables::of(&opened.connection)?;
    Ok((opened, tables))
}

/// Rolls back the journal that a crash of a writer has left. The caller must know that no writer is
/// running.
pub(super) fn recover(file: &Path) -> rusqlite::Result<()> {
    let connection = for_writing(file, false, true)?;
    // The first query recovers the file.
    connection.table_exists(None, "ValidPaths")?;
    Ok(())
}

fn try_for_reading(file: &Path, policy: BusyPolicy) -> rusqlite::Result<Opened> {
    check_locks(file)?;
    let opened = match SideFile::unapplied(file) {
        // A running writer ends its transaction soon. SQLite would wait for a dead one as long.
        Some(SideFile::Journal) if !wait_for_writer(file, SHORT_WAIT) => {
            open_copy(file, SideFile::Journal)
        }
        _ => match open_with_locks(file, policy) {
            Err(error) if is_refused(&error) => open_without_locks(file, error),
            opened => return opened,
        },
    };
    Ok(Opened {
        connection: verify_readable(opened?, policy)?,
        access: AccessMode::Immutable,
        big_lock: None,
    })
}

/// Opens a database beside which this user may create no files, or a copy of it.
fn open_without_locks(file: &Path, error: rusqlite::Error) -> rusqlite::Result<Connection> {
    if let Some(side) = SideFile::unapplied(file) {
        return open_copy(file, side);
    }
    if is_empty(&side_file(file, "-wal")) && !is_being_written(file) {
        open_immutable(file)
    } else {
        Err(error)
    }
}

fn open_with_locks(file: &Path, policy: BusyPolicy) -> rusqlite::Result<Opened> {
    let mut connection = Connection::open_with_flags(file, READ_FLAGS)?;
    // Without a policy, rusqlite applies its own default timeout.
    set_busy_policy(&mut connection, policy)?;
    if !uses_lock_directory(&connection, file) {
        let connection = verify_readable(connection, policy)?;
        // The mode may have changed between the first check and the opening.
        if !uses_lock_directory(&connection, file) {
            return Ok(Opened {
                connection,
                access: AccessMode::Wal,
                big_lock: None,
            });
        }
    } else {
        drop(connection);
    }
    let may_write = file.parent().is_some_and(may_write);
    let Some(big_lock) = may_write.then(|| open_big_lock(file)).flatten() else {
        // SQLite reports a lock that cannot be created as held by another process, and would wait
        // in vain.
        let code = if wait_for_writer(file, policy) {
            rusqlite::ffi::SQLITE_PERM
        } else {
            rusqlite::ffi::SQLITE_BUSY
        };
        return Err(sqlite_error(code));
    };
    if !lock_shared(file, &big_lock, policy) {
        return Err(sqlite_error(rusqlite::ffi::SQLITE_BUSY));
    }
    let connection = Connection::open_with_flags_and_vfs(file, READ_FLAGS, LOCK_DIRECTORY_VFS)?;
    Ok(Opened {
        connection: verify_readable(connection, policy)?,
        access: AccessMode::LockDirectory,
        big_lock: Some(big_lock),
    })
}

/// Checks that the file system supports the locks of SQLite, which takes each error for a lock of
/// another process and would wait. The file beside the database is one that SQLite never locks,
/// because closing a file ends all locks of the process on it.
fn check_locks(file: &Path) -> rusqlite::Result<()> {
    let Ok(other) = File::open(file.with_file_name(SCHEMA_FILE)) else {
        return Ok(());
    };
    let errno = match fcntl_lock(&other, FlockOperation::NonBlockingLockShared) {
        Err(errno @ (Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP)) => errno,
        _ => return Ok(()),
    };
    let reason = format!(
        "the file system supports no locks ({errno}); try to mount it with locks, for NFS with \
         local_lock=all if no other machine uses the store"
    );
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_PROTOCOL);
    Err(rusqlite::Error::SqliteFailure(code, Some(reason)))
}

/// The version of the schema, which each store has.
const SCHEMA_FILE: &str = "schema";

fn sqlite_error(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

fn uses_lock_directory(connection: &Connection, file: &Path) -> bool {
    match journal_mode(connection) {
        Ok(mode) => mode != "wal",
        // A journal that is not empty needs a rollback. A write-ahead log needs none.
        Err(_) => !is_empty(&side_file(file, "-journal")),
    }
}

pub(super) fn journal_mode(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

pub(super) fn set_busy_timeout(connection: &Connection, time: Duration) -> rusqlite::Result<()> {
    connection.busy_timeout(time.min(BUSY_TIMEOUT_MAX))
}

fn set_busy_policy(connection: &mut Connection, policy: BusyPolicy) -> rusqlite::Result<()> {
    match policy {
        BusyPolicy::Timeout(time) => set_busy_timeout(connection, time),
        BusyPolicy::CurrentScope => connection.busy_handler(Some(wait_for_database)),
    }
}

/// Runs a query, because a database whose log cannot be opened fails only at the first query.
fn verify_readable(mut connection: Connection, policy: BusyPolicy) -> rusqlite::Result<Connection> {
    set_busy_policy(&mut connection, policy)?;
    connection.table_exists(None, "ValidPaths")?;
    Ok(connection)
}

/// Whether only missing permissions can have prevented the opening.
fn is_refused(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, PermissionDenied, ReadOnly, SystemIoFailure};
    let codes = [CannotOpen, ReadOnly, PermissionDenied, SystemIoFailure];
    error
        .sqlite_error_code()
        .is_some_and(|code| codes.contains(&code))
}

/// Whether a writer that uses a lock directory is running or has crashed.
fn is_being_written(file: &Path) -> bool {
    !is_empty(&side_file(file, "-journal")) || lock_directory(file).exists()
}

/// Waits until no writer holds the lock directory. Returns `false` if the wait timed out.
fn wait_for_writer(file: &Path, policy: BusyPolicy) -> bool {
    wait_until(policy, || !is_being_written(file))
}

const READ_FLAGS: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// SQLite's VFS with lock directories, which Nix selects when it does without a write-ahead log.
const LOCK_DIRECTORY_VFS: &std::ffi::CStr = c"unix-dotfile";

/// Longer than most transactions of a writer.
const SHORT_WAIT: BusyPolicy = BusyPolicy::Timeout(Duration::from_secs(1));

/// SQLite counts milliseconds in 31 bits. No reader waits for a day.
const BUSY_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_during_lock_directory_write_does_not_roll_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("db.sqlite");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let writer = Connection::open_with_flags_and_vfs(&file, flags, LOCK_DIRECTORY_VFS).unwrap();
        // The cache is so small that SQLite writes pages before the commit.
        let begin = "pragma journal_mode = truncate; pragma cache_size = 1; \
             create table ValidPaths (id integer primary key, path text); begin exclusive; \
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
             insert into ValidPaths select i, hex(randomblob(50)) from n";
        writer.execute_batch(begin).unwrap();
        assert!(is_being_written(&file));
        // Nix holds the big lock while it has the database open.
        let big_lock = open_big_lock(&file).unwrap();
        big_lock.lock_shared().unwrap();
        let other = for_writing(&file, false, true).unwrap();
        assert!(for_reading(&file, BusyPolicy::Timeout(Duration::ZERO)).is_err());
        writer.execute_batch("commit").unwrap();
        let count: i64 = other
            .query_row("select count(*) from ValidPaths", (), |row| row.get(0))
            .unwrap();
        assert_eq!(count, 5000);
        let check: String = other
            .query_row("pragma integrity_check", (), |row| row.get(0))
            .unwrap();
        assert_eq!(check, "ok");
    }
}
