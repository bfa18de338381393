//! The tables of a database: found, missing, or those of another program.

use std::ffi::OsString;
use std::path::Path;

use floe_format::StorePath;
use rusqlite::Connection;

use super::{DatabaseOptions, database_error, retry_while_busy};
use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext as _, StoreError};
use crate::events::StoreEvent;

/// Whether a database without tables gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingTables {
    /// The tables are created, for programs that add paths.
    Create,
    /// The database is refused. Its rows may be lost, and a program that deletes what has no row
    /// would delete the whole store.
    Refuse,
}

/// The tables of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// It has the tables of Nix.
    OfNix,
    /// It has no table of paths: a power cut during the creation of the store leaves such a file,
    /// and so does a failed restore. Each command of the newest Nix then makes its further tables.
    None,
    /// It has other tables.
    Foreign,
}

impl Tables {
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Tables> {
        // One query, because another process may create the tables meanwhile.
        let query = "select name from sqlite_schema where type = 'table'";
        let mut statement = connection.prepare(query)?;
        let names = statement.query_map((), |row| row.get(0))?;
        let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
        let is_of_other = |name: &String| {
            !name.starts_with("sqlite_") && !FURTHER_TABLES.contains(&name.as_str())
        };
        Ok(if names.iter().any(|name| name == "ValidPaths") {
            Tables::OfNix
        } else if names.iter().any(is_of_other) {
            Tables::Foreign
        } else {
            Tables::None
        })
    }
}

/// The tables of all versions of Nix beside that of the paths (schema.sql,
/// ca-specific-schema.sql).
const FURTHER_TABLES: [&str; 6] = [
    "Refs",
    "DerivationOutputs",
    "Realisations",
    "RealisationsRefs",
    "BuildTraceV3",
    "SchemaMigrations",
];

/// Creates the tables of a database that has none. A database of another program is refused.
pub(super) fn make_tables(
    layout: &StoreLayout,
    connection: &Connection,
    file: &Path,
    is_new: bool,
    options: &DatabaseOptions,
) -> Result<(), StoreError> {
    let error = |source| database_error("prepare", file, source);
    match Tables::of(connection).map_err(error)? {
        Tables::OfNix if !is_new => return Ok(()),
        Tables::Foreign => return Err(StoreError::ForeignDatabase(file.to_path_buf())),
        // After a power cut, the schema file may be there and the tables may not.
        Tables::None | Tables::OfNix => {}
    }
    if !is_new && options.missing == MissingTables::Refuse {
        let database = file.to_path_buf();
        return Err(StoreError::NoTables { database });
    }
    let text = format!("begin immediate;\n{SCHEMA}\ncommit;");
    retry_while_busy(is_new, || connection.execute_batch(&text)).map_err(error)?;
    let trees = count_trees(layout);
    if !is_new && trees > 0 {
        options.events.send(StoreEvent::LostRows { trees });
    }
    Ok(())
}

/// Whether the store directory has no file that may be a path.
pub(crate) fn has_no_trees(layout: &StoreLayout) -> bool {
    count_trees(layout) == 0
}

/// The number of files in the store directory that may be paths whose rows were lost.
fn count_trees(layout: &StoreLayout) -> usize {
    let names = Directory::open(&layout.real_store_dir)
        .and_then(|store| store.list().io_context("list", &layout.real_store_dir));
    let names = names.unwrap_or_default();
    let is_tree = |name: &OsString| {
        let path = name.to_str().map(StorePath::parse);
        path.is_some_and(|path| path.is_ok_and(|it| !it.name().ends_with(".lock")))
    };
    names.iter().filter(|(name, _)| is_tree(name)).count()
}

pub(super) const SCHEMA: &str = include_str!("schema.sql");
