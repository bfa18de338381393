//! The Nix database: one SQLite file per store, shared with every Nix that uses the store.
//!
//! Opened and created as the newest Nix does it (local-store.cc of Nix 2.36): schema 10,
//! write-ahead log kept on close, foreign keys on. What differs between Nix versions (more or
//! fewer tables, an index) is accepted and left as it is.

mod read;
mod write;

pub(crate) use write::Registration;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, DEFAULT_NAME, FileControl, OpenFlags};

use crate::error::{At, StoreError};
use crate::layout::Layout;

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    file: PathBuf,
    layout: Layout,
}

impl Database {
    /// Opens the database for writing; makes it where there is none. The state directory must
    /// exist and the caller must hold `db/big-lock` shared.
    pub(crate) fn open_writable(layout: &Layout) -> Result<Database, StoreError> {
        let schema_file = layout.database_dir().join("schema");
        let is_new = !check_schema(&schema_file)?;
        let file = layout.database_dir().join("db.sqlite");
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if is_new {
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let connection = open(&file, flags).map_err(|source| failed("opening", &file, source))?;
        prepare(&connection, is_new).map_err(|source| failed("preparing", &file, source))?;
        if is_new {
            // Whole or not at all: who finds an empty one knows no schema.
            let temporary = schema_file.with_file_name(format!("schema-{}", std::process::id()));
            fs::write(&temporary, "10").at("writing", &temporary)?;
            fs::rename(&temporary, &schema_file).at("writing", &schema_file)?;
        }
        Ok(Database {
            connection,
            file,
            layout: layout.clone(),
        })
    }

    /// Opens an existing database for reading. Where this user may not even make the side files
    /// of the write-ahead log, the file is read as it stands.
    pub(crate) fn open_read_only(layout: &Layout) -> Result<Database, StoreError> {
        let file = layout.database_dir().join("db.sqlite");
        if !file.exists() {
            return Err(StoreError::NoStore {
                path: layout.real_store.clone(),
                database: file,
            });
        }
        check_schema(&layout.database_dir().join("schema"))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = open(&file, flags)
            .and_then(answers)
            .or_else(|error| {
                if !may_read_as_it_stands(&error, &file) {
                    return Err(error);
                }
                let uri = immutable_uri(&file);
                Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)
                    .and_then(answers)
            })
            .map_err(|source| failed("opening", &file, source))?;
        Ok(Database {
            connection,
            file,
            layout: layout.clone(),
        })
    }

    fn failed(&self, action: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
        move |source| failed(action, &self.file, source)
    }
}

/// Whether the schema file is there and says 10.
fn check_schema(schema_file: &Path) -> Result<bool, StoreError> {
    match fs::read_to_string(schema_file) {
        Ok(text) if text.trim() == "10" => Ok(true),
        // The rest of a disk that was full when the store was made.
        Ok(text) if text.is_empty() => Ok(false),
        Ok(text) => Err(StoreError::Schema {
            path: schema_file.to_path_buf(),
            found: text.trim().into(),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).at("reading", schema_file),
    }
}

/// Opens a file with the kind of locks that Nix uses on it. A Nix with `use-sqlite-wal = false`
/// locks by a file beside the database, because its kind of file system may know no other locks.
fn open(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, flags)?;
    let creates = flags.contains(OpenFlags::SQLITE_OPEN_CREATE);
    match journal_mode(&connection) {
        Ok(mode) if mode != "wal" && !creates => {
            Connection::open_with_flags_and_vfs(file, flags, c"unix-dotfile")
        }
        // What cannot be asked now fails, or does not, at the first real question.
        _ => Ok(connection),
    }
}

fn journal_mode(connection: &Connection) -> rusqlite::Result<String> {
    connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
}

/// Whether a database that cannot be opened in the ordinary way may be read as an unchanging
/// file: only this user's rights are in the way, and nothing waits in its log.
fn may_read_as_it_stands(error: &rusqlite::Error, file: &Path) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, PermissionDenied, ReadOnly, SystemIoFailure};
    let log = file.with_file_name("db.sqlite-wal");
    let log_is_empty = fs::metadata(&log).map_or(true, |metadata| metadata.len() == 0);
    let code = error.sqlite_error_code();
    log_is_empty
        && matches!(
            code,
            Some(CannotOpen | ReadOnly | PermissionDenied | SystemIoFailure)
        )
}

/// The settings that Nix makes on each connection, and the tables of a new store.
fn prepare(connection: &Connection, is_new: bool) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
    // Without a sync per commit a crash of the system may lose the newest rows, never the file.
    connection.pragma_update(None, "synchronous", "normal")?;
    let mode = journal_mode(connection)?;
    // A store made by a Nix with use-sqlite-wal = false stays in its mode: changing it needs
    // everybody else to be out, and both modes serve.
    if !is_new && mode != "wal" {
        connection.pragma_update(None, "journal_mode", "truncate")?;
    } else {
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "journal_size_limit", WAL_SIZE_LIMIT)?;
        connection.pragma_update(None, "wal_autocheckpoint", WAL_CHECKPOINT_PAGES)?;
        // The log's files stay, so that a user who may only read can open the database later.
        let mut keep = 1;
        connection.file_control(DEFAULT_NAME, FileControl::PersistWal(&mut keep))?;
    }
    if is_new {
        connection.execute_batch(&format!("begin immediate;\n{SCHEMA}\ncommit;"))?;
    }
    Ok(())
}

/// A database file whose log cannot be opened fails only at the first question.
fn answers(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.query_row(
        "select count(*) from (select 1 from ValidPaths limit 1)",
        (),
        |_| Ok(()),
    )?;
    Ok(connection)
}

fn immutable_uri(file: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in file.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}

fn failed(action: &'static str, file: &Path, source: rusqlite::Error) -> StoreError {
    StoreError::Database {
        action,
        path: file.to_path_buf(),
        source,
    }
}

const SCHEMA: &str = include_str!("database/schema.sql");

/// A Nix that registers a large closure holds the database for seconds, a vacuum for minutes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(600);

/// As Nix sets it: the log is cut back to nothing on close, and may grow to a tebibyte before.
const WAL_SIZE_LIMIT: i64 = 1 << 40;

/// As Nix sets it, so that registering a whole system needs one sync.
const WAL_CHECKPOINT_PAGES: i64 = 40_000;
