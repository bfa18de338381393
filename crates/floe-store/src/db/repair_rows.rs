//! The search for damaged rows in the whole database, and their repair.

use std::collections::HashSet;

use floe_format::StorePath;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Params, Row, Transaction, TransactionBehavior,
    params,
};

use super::Database;
use super::damaged_rows::{
    DamagedRow, Faults, Table, bytes_of, integer_cell, printable, text_cell,
};
use super::path_row::{COLUMNS, PathRow};
use super::write::{INSERT_REFERENCE, Registration, insert_outputs, now, path_id, signatures};
use crate::error::StoreError;

impl Database {
    /// Returns all rows that do not parse, sorted by table and number. References of such rows are
    /// left out, because they vanish with them.
    pub(crate) fn damaged_rows(&self) -> Result<Vec<DamagedRow>, StoreError> {
        let mut found = self.damaged_paths()?;
        let has_no_path = found.iter().filter(|row| row.path.is_none());
        let meaningless: HashSet<i64> = has_no_path.map(|row| row.row).collect();
        found.extend(self.damaged_references(&meaningless)?);
        found.extend(self.damaged_outputs("true", ())?);
        Ok(found)
    }

    /// Returns the valid paths whose whole rows parse, sorted by name. Records the other rows.
    pub(crate) fn readable_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let mut damaged = self.damaged_rows()?;
        // The outputs of a derivation are not a part of its information.
        damaged.retain(|row| row.table != Table::DerivationOutputs);
        let mut paths = self.valid_paths()?;
        let unreadable: HashSet<&StorePath> =
            damaged.iter().filter_map(|row| row.path.as_ref()).collect();
        paths.retain(|path| !unreadable.contains(path));
        damaged
            .into_iter()
            .for_each(|row| self.skipped_rows.record(row));
        Ok(paths)
    }

    /// Returns the row of a path if it or one of its references does not parse, and those of its
    /// outputs that do not parse.
    pub(crate) fn damaged_rows_of(&self, path: &StorePath) -> Result<Vec<DamagedRow>, StoreError> {
        let text = self.layout.store_dir.full_path(path);
        let mut found = self.damaged_outputs("v.path = ?1", [text])?;
        if let Some(Err(row)) = self.path_info_or_damaged_row(path)? {
            found.push(row);
        }
        Ok(found)
    }

    /// Replaces all that is registered about a valid path. Each reference must be valid. The row
    /// keeps its number and, if it has one, its registration time.
    ///
    /// Returns `false` and changes nothing if a reference is not valid.
    pub(crate) fn replace(&self, registration: &Registration<'_>) -> Result<bool, StoreError> {
        let error = |source| super::database_error("update a path in", &self.file, source);
        let transaction = self.begin_immediate()?;
        let is_complete = self
            .try_replace(&transaction, registration)
            .map_err(error)?;
        if is_complete {
            transaction.commit().map_err(error)?;
        }
        Ok(is_complete)
    }

    pub(super) fn try_replace(
        &self,
        transaction: &Connection,
        registration: &Registration<'_>,
    ) -> rusqlite::Result<bool> {
        let info = registration.info;
        let print = |path: &StorePath| self.layout.store_dir.full_path(path);
        let text = "update ValidPaths set hash = ?2, deriver = ?3, narSize = ?4, ultimate = ?5, \
             sigs = ?6, ca = ?7, registrationTime = case typeof(registrationTime) \
             when 'integer' then registrationTime else ?8 end where path = ?1 returning id";
        let id = transaction.query_row(
            text,
            params![
                print(&info.path),
                info.nar_hash.to_base16(),
                info.deriver.as_ref().map(print),
                i64::try_from(info.nar_size).ok().filter(|size| *size != 0),
                info.ultimate.then_some(1),
                signatures(info),
                info.ca.as_ref().map(ToString::to_string),
                i64::try_from(now()).unwrap_or(i64::MAX),
            ],
            |row| row.get::<_, i64>(0),
        )?;
        transaction.execute("delete from Refs where referrer = ?1", [id])?;
        transaction.execute("delete from DerivationOutputs where drv = ?1", [id])?;
        insert_outputs(transaction, id, registration, &print)?;
        for reference in &info.references {
            let Some(reference) = path_id(transaction, &print(reference))? else {
                return Ok(false);
            };
            transaction.execute(INSERT_REFERENCE, [id, reference])?;
        }
        Ok(true)
    }

    /// Returns the number of the row of a valid path.
    pub(crate) fn row_of(&self, path: &StorePath) -> Result<Option<i64>, StoreError> {
        let path = self.layout.store_dir.full_path(path);
        self.query("query", super::PATH_ID, |query| {
            query.query_row([path], |row| row.get(0)).optional()
        })
    }

    /// Registers the size of the NAR of a valid path, in bytes.
    pub(crate) fn set_nar_size(&self, path: &StorePath, nar_size: u64) -> Result<(), StoreError> {
        let text = "update ValidPaths set narSize = ?2 where path = ?1";
        let path = self.layout.store_dir.full_path(path);
        let nar_size = i64::try_from(nar_size).unwrap_or(i64::MAX);
        self.query("update a path in", text, |query| {
            query.execute(params![path, nar_size])
        })?;
        Ok(())
    }

    /// Removes the damaged rows that describe no path of this store, and returns them. A row stays
    /// if a valid path refers to it, because that path would lose a reference.
    pub(crate) fn remove_meaningless_rows(&self) -> Result<Vec<DamagedRow>, StoreError> {
        let transaction = self.begin_immediate()?;
        let found = self.damaged_rows()?.into_iter();
        let meaningless = found.filter(|row| row.path.is_none()).collect();
        let error = |source| super::database_error("remove rows from", &self.file, source);
        let removed = remove_rows(&transaction, meaningless).map_err(error)?;
        transaction.commit().map_err(error)?;
        Ok(removed)
    }

    fn begin_immediate(&self) -> Result<Transaction<'_>, StoreError> {
        let behavior = TransactionBehavior::Immediate;
        Transaction::new_unchecked(&self.connection, behavior)
            .map_err(|source| super::database_error("repair rows of", &self.file, source))
    }

    fn damaged_paths(&self) -> Result<Vec<DamagedRow>, StoreError> {
        let text = format!("select {COLUMNS} from ValidPaths v order by v.id");
        self.collect(&text, (), &mut |row| {
            Ok(self.parse_row(PathRow::read(row)?).err())
        })
    }

    /// Returns the references that name no path. `meaningless` has the numbers of the rows that
    /// describe no path.
    fn damaged_references(
        &self,
        meaningless: &HashSet<i64>,
    ) -> Result<Vec<DamagedRow>, StoreError> {
        let missing = "select r.rowid, r.referrer, r.reference, p.id, p.path from Refs r \
             left join ValidPaths p on p.id = r.referrer \
             left join ValidPaths t on t.id = r.reference where p.id is null or t.id is null";
        let mut found = self.collect(missing, (), &mut |row| {
            self.row_of_owner(row, Table::Refs, |faults, owner| {
                match owner {
                    None => add_missing(faults, "referrer", row.get_ref(1)?),
                    Some(_) => add_missing(faults, "reference", row.get_ref(2)?),
                }
                Ok(())
            })
        })?;
        let naming = "select r.rowid, r.referrer, r.reference, p.id, p.path from Refs r \
             join ValidPaths p on p.id = r.referrer where r.reference = ?1";
        for id in meaningless {
            found.extend(self.collect(naming, [id], &mut |row| {
                self.row_of_owner(row, Table::Refs, |faults, _| {
                    faults.add("reference", &format!("row {id} does not parse"));
                    Ok(())
                })
            })?);
        }
        found.sort_unstable_by_key(|row| row.row);
        Ok(found)
    }

    /// Returns the outputs of derivations that do not parse.
    fn damaged_outputs(
        &self,
        condition: &str,
        parameters: impl Params,
    ) -> Result<Vec<DamagedRow>, StoreError> {
        let text = format!(
            "select o.rowid, o.drv, o.id, v.id, v.path, o.path from DerivationOutputs o \
             left join ValidPaths v on v.id = o.drv where {condition} order by o.rowid"
        );
        self.collect(&text, parameters, &mut |row| {
            self.row_of_owner(row, Table::DerivationOutputs, |faults, owner| {
                if owner.is_none() {
                    add_missing(faults, "drv", row.get_ref(1)?);
                }
                let output = text_cell(row.get_ref(2)?);
                faults.require("id", output.map(|it| it.filter(|text| !text.is_empty())));
                let path = text_cell(row.get_ref(5)?);
                faults.require("path", path.and_then(|text| self.parse_path_cell(text)));
                Ok(())
            })
        })
    }

    /// Checks a row of a table that belongs to a row of ValidPaths, of which columns 3 and 4 have
    /// the number and the path. Returns `None` if there is no fault, or if the owner is damaged
    /// itself.
    fn row_of_owner(
        &self,
        row: &Row<'_>,
        table: Table,
        check: impl FnOnce(&mut Faults, Option<i64>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<Option<DamagedRow>> {
        let owner: Option<i64> = row.get(3)?;
        let value = row.get_ref(4)?;
        let parsed = text_cell(value).and_then(|text| self.parse_path_cell(text));
        let path = parsed.ok().flatten();
        if owner.is_some() && path.is_none() {
            return Ok(None);
        }
        let mut faults = Faults::default();
        check(&mut faults, owner)?;
        let Some(reason) = faults.reason() else {
            return Ok(None);
        };
        let text = match owner {
            Some(_) => printable(bytes_of(value)),
            None => table.to_string(),
        };
        Ok(Some(DamagedRow {
            table,
            row: row.get(0)?,
            text,
            path,
            reason,
        }))
    }

    fn collect(
        &self,
        text: &str,
        parameters: impl Params,
        read: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<Option<DamagedRow>>,
    ) -> Result<Vec<DamagedRow>, StoreError> {
        self.query("examine the rows of", text, |query| {
            let (mut found, mut rows) = (Vec::new(), query.query(parameters)?);
            while let Some(row) = rows.next()? {
                found.extend(read(row)?);
            }
            Ok(found)
        })
    }
}

/// Removes rows that describe no path, and returns those that no valid path refers to.
fn remove_rows(
    transaction: &Connection,
    rows: Vec<DamagedRow>,
) -> rusqlite::Result<Vec<DamagedRow>> {
    // References between the rows forbid to delete one after the other.
    let paths = rows.iter().filter(|row| row.table == Table::ValidPaths);
    for row in paths {
        transaction.execute("delete from Refs where referrer = ?1", [row.row])?;
    }
    let mut removed = Vec::new();
    // The rows of ValidPaths come last, because a reference keeps its row.
    for row in rows.into_iter().rev() {
        let text = match row.table {
            Table::ValidPaths => "delete from ValidPaths where id = ?1",
            Table::Refs => "delete from Refs where rowid = ?1",
            Table::DerivationOutputs => "delete from DerivationOutputs where rowid = ?1",
        };
        match transaction.execute(text, [row.row]) {
            Ok(0) => {}
            Ok(_) => removed.push(row),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

/// Adds the fault that a column names a row that does not exist.
fn add_missing(faults: &mut Faults, column: &str, value: rusqlite::types::ValueRef<'_>) {
    match integer_cell(value) {
        Ok(Some(number)) => faults.add(column, &format!("there is no row {number}")),
        Ok(None) => faults.add(column, "it is NULL"),
        Err(reason) => faults.add(column, &reason),
    }
}
