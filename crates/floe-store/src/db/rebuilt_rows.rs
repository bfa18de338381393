//! The rows of a database that is made new: all of them are replaced in one transaction.

use std::collections::{HashMap, HashSet};

use floe_format::{PathInfo, StorePath};
use rusqlite::types::Type;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

use super::Database;
use super::damaged_rows::text_cell;
use super::write::{INSERT_REFERENCE, Registration, insert_outputs, insert_path, path_id};
use crate::error::StoreError;

impl Database {
    /// Makes `all` the valid paths of the database, in one transaction. Paths of `unchanged` keep
    /// their rows, whose references must be among `all`; other rows are replaced or removed.
    /// Realisations of removed paths go too.
    ///
    /// Errors: [`StoreError::MissingReferences`], and those of SQLite. They leave the database
    /// unchanged.
    pub(crate) fn replace_all(
        &self,
        all: &[Registration<'_>],
        unchanged: &HashSet<&StorePath>,
    ) -> Result<(), StoreError> {
        let error = |source| super::database_error("replace the rows of", &self.file, source);
        self.retry_when_full(|| {
            let replaced = self.try_replace_all(all, unchanged).map_err(error)?;
            replaced.map_err(|info| StoreError::MissingReferences {
                path: info.path.clone(),
                missing: info.references.clone(),
            })
        })
    }

    /// As [`Database::replace_all`]. Returns a path of which a reference is not among `all`.
    fn try_replace_all<'a>(
        &self,
        all: &[Registration<'a>],
        unchanged: &HashSet<&StorePath>,
    ) -> rusqlite::Result<Result<(), &'a PathInfo>> {
        let behavior = TransactionBehavior::Immediate;
        let transaction = Transaction::new_unchecked(&self.connection, behavior)?;
        let print = |path: &StorePath| self.layout.store_dir.full_path(path);
        transaction.execute_batch(REMOVE_DANGLING_ROWS)?;
        let wanted: HashSet<&StorePath> = all.iter().map(|it| &it.info.path).collect();
        let found = self.existing_rows(&transaction, &wanted)?;
        remove_paths(&transaction, &found.unwanted)?;
        let changed = all.iter().filter(|it| !unchanged.contains(&it.info.path));
        let (old, new): (Vec<_>, Vec<_>) =
            changed.partition(|it| found.wanted.contains_key(&it.info.path));
        let mut ids = HashMap::new();
        for registration in &new {
            ids.insert(
                &registration.info.path,
                insert_path(&transaction, registration, &print)?,
            );
        }
        for registration in &new {
            let info = registration.info;
            for reference in &info.references {
                let Some(reference) = path_id(&transaction, &print(reference))? else {
                    return Ok(Err(info));
                };
                let mut insert = transaction.prepare_cached(INSERT_REFERENCE)?;
                insert.execute([ids[&info.path], reference])?;
            }
        }
        // The contents of a derivation tell its outputs, whatever the database says.
        for registration in all.iter().filter(|it| unchanged.contains(&it.info.path)) {
            if let Some(id) = found.wanted.get(&registration.info.path)
                && !registration.outputs.is_empty()
            {
                transaction.execute("delete from DerivationOutputs where drv = ?1", [id])?;
                insert_outputs(&transaction, *id, registration, &print)?;
            }
        }
        for registration in &old {
            if !self.try_replace(&transaction, registration)? {
                return Ok(Err(registration.info));
            }
        }
        transaction.commit()?;
        Ok(Ok(()))
    }

    /// Returns the rows of all paths, divided by whether they are wanted.
    fn existing_rows(
        &self,
        connection: &Connection,
        wanted: &HashSet<&StorePath>,
    ) -> rusqlite::Result<ExistingRows> {
        let mut found = ExistingRows::default();
        let mut query = connection.prepare("select id, path from ValidPaths")?;
        let mut rows = query.query(())?;
        while let Some(row) = rows.next()? {
            let (id, value) = (row.get(0)?, row.get_ref(1)?);
            let parsed = text_cell(value).and_then(|text| self.parse_path_cell(text));
            match parsed {
                // A path of another type is not found by its text.
                Ok(Some(path)) if value.data_type() == Type::Text && wanted.contains(&path) => {
                    found.wanted.insert(path, id);
                }
                _ => found.unwanted.push(id),
            }
        }
        Ok(found)
    }
}

/// The numbers of the rows of paths.
#[derive(Default)]
struct ExistingRows {
    wanted: HashMap<StorePath, i64>,
    unwanted: Vec<i64>,
}

/// Removes the rows of paths, and all that refers to them.
fn remove_paths(connection: &Connection, rows: &[i64]) -> rusqlite::Result<()> {
    let mut references =
        connection.prepare("delete from Refs where referrer = ?1 or reference = ?1")?;
    for row in rows {
        references.execute([row])?;
    }
    let mut remove = connection.prepare("delete from ValidPaths where id = ?1")?;
    for row in rows {
        match remove.execute([row]) {
            // The realisation of another derivation depends on one of this path, and the database
            // has no trigger that removes this dependency.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                connection.execute(REMOVE_DEPENDENCIES, [row])?;
                remove.execute([row])?;
            }
            removed => _ = removed?,
        }
    }
    Ok(())
}

/// References and outputs of rows that do not exist.
const REMOVE_DANGLING_ROWS: &str = "
    delete from Refs where referrer not in (select id from ValidPaths)
        or reference not in (select id from ValidPaths);
    delete from DerivationOutputs where drv not in (select id from ValidPaths);";

/// Removes the dependencies of realisations on those of a path.
const REMOVE_DEPENDENCIES: &str = "delete from RealisationsRefs where realisationReference in \
     (select id from Realisations where outputPath = ?1)";
