//! The queries, one function each.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::LazyLock;

use floe_format::{HashPart, PathInfo, Signature, StorePath};
use rusqlite::{Params, Transaction, TransactionBehavior};

use super::Database;
use super::damaged_rows::{DamagedRow, bytes_of, integer_cell, text_cell};
use super::path_row::{COLUMNS, PathRow, parse_signatures};
use crate::error::StoreError;

impl Database {
    /// Whether a path is valid.
    pub(crate) fn is_valid(&self, path: &StorePath) -> Result<bool, StoreError> {
        let path = self.layout.store_dir.full_path(path);
        self.query("look up a path in", super::PATH_ID, |query| {
            query.exists([path])
        })
    }

    /// Returns the row of a path with its references, or `None` if the path is not valid.
    ///
    /// Errors: [`StoreError::InvalidRow`] if the row does not parse.
    pub(crate) fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        let found = self.path_info_or_damaged_row(path)?.transpose();
        found.map_err(|row| self.invalid_row(row))
    }

    /// As [`Database::path_info`], but returns a row that does not parse.
    pub(crate) fn path_info_or_damaged_row(
        &self,
        path: &StorePath,
    ) -> Result<Option<Result<PathInfo, DamagedRow>>, StoreError> {
        let text = self.layout.store_dir.full_path(path);
        let rows = self.rows_with_references(&PATH_INFO, [text])?;
        Ok(rows.into_iter().next().map(|row| self.parse_row(row)))
    }

    /// Returns the row of the path with this hash part.
    pub(crate) fn path_info_from_hash_part(
        &self,
        part: HashPart,
    ) -> Result<Option<PathInfo>, StoreError> {
        for row in self.rows_with_references(&PATH_INFO_OF_HASH_PART, self.bounds(part))? {
            match self.parse_row(row) {
                Ok(info) => return Ok(Some(info)),
                Err(row) if row.path.is_some() => return Err(self.invalid_row(row)),
                Err(row) => self.skipped_rows.record(row),
            }
        }
        Ok(None)
    }

    /// Returns the valid path with this hash part.
    pub(crate) fn query_path_from_hash_part(
        &self,
        part: HashPart,
    ) -> Result<Option<StorePath>, StoreError> {
        let text =
            format!("select v.id, v.path from ValidPaths v where {HAS_HASH_PART} order by v.path");
        let found = self.query_paths("look up a hash part in", &text, self.bounds(part))?;
        Ok(found.into_iter().next().map(|(_, path)| path))
    }

    /// The range of the full paths with a hash part. Other text may follow a hash part in a row
    /// that does not parse.
    fn bounds(&self, part: HashPart) -> [String; 2] {
        let dir = self.layout.store_dir.as_str();
        // `.` is the character after `-`.
        [format!("{dir}/{part}-"), format!("{dir}/{part}.")]
    }

    /// Returns all valid paths, sorted by name.
    pub(crate) fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let text = "select id, path from ValidPaths order by path";
        let found = self.query_paths("list the valid paths of", text, ())?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the number of the newest row; 0 if there is none. Later rows have larger numbers.
    pub(crate) fn newest_row(&self) -> Result<i64, StoreError> {
        let text = "select coalesce(max(id), 0) from ValidPaths";
        self.query("list the new paths of", text, |query| {
            query.query_row((), |row| row.get(0))
        })
    }

    /// Returns the paths that were registered after a row, with the numbers of their rows.
    pub(crate) fn valid_paths_after(&self, row: i64) -> Result<Vec<(i64, StorePath)>, StoreError> {
        let text = "select id, path from ValidPaths where id > ?1 order by id";
        self.query_paths("list the new paths of", text, [row])
    }

    /// Returns the valid paths that refer to a path, including the path itself if it refers to
    /// itself.
    pub(crate) fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        let text = "select v.id, v.path from Refs r join ValidPaths v on r.referrer = v.id \
             where r.reference = (select id from ValidPaths where path = ?1)";
        let path = self.layout.store_dir.full_path(path);
        let found = self.query_paths("look up referrers in", text, [path])?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the known paths of the outputs of a derivation, sorted by the names of the outputs.
    pub(crate) fn derivation_outputs(
        &self,
        derivation: &StorePath,
    ) -> Result<Vec<StorePath>, StoreError> {
        let text = "select drv, path from DerivationOutputs \
             where drv = (select id from ValidPaths where path = ?1) order by id";
        let derivation = self.layout.store_dir.full_path(derivation);
        let found = self.query_paths("look up outputs in", text, [derivation])?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the valid derivations with an output of this path.
    pub(crate) fn valid_derivers(&self, output: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        let text = "select v.id, v.path from DerivationOutputs o join ValidPaths v on o.drv = v.id \
             where o.path = ?1";
        let output = self.layout.store_dir.full_path(output);
        let found = self.query_paths("look up derivers in", text, [output])?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// Returns the references of a path, or `None` if the path is not valid. The other columns of
    /// its row need not parse.
    pub(crate) fn references(
        &self,
        path: &StorePath,
    ) -> Result<Option<Vec<StorePath>>, StoreError> {
        let text = "select v.id, v.path from Refs r join ValidPaths v on r.reference = v.id \
             where r.referrer = (select id from ValidPaths where path = ?1)";
        let full_path = self.layout.store_dir.full_path(path);
        let found = self.query_paths("look up a path in", text, [full_path])?;
        if found.is_empty() && !self.is_valid(path)? {
            return Ok(None);
        }
        Ok(Some(found.into_iter().map(|(_, path)| path).collect()))
    }

    /// Returns row numbers and paths. Leaves out rows whose paths do not parse, and records them.
    pub(super) fn query_paths(
        &self,
        action: &'static str,
        text: &str,
        parameters: impl Params,
    ) -> Result<Vec<(i64, StorePath)>, StoreError> {
        self.query(action, text, |query| {
            let (mut paths, mut rows) = (Vec::new(), query.query(parameters)?);
            while let Some(row) = rows.next()? {
                let id = row.get(0)?;
                let path = self.parse_listed_path(id, row.get_ref(1)?);
                paths.extend(path.map(|path| (id, path)));
            }
            Ok(paths)
        })
    }

    /// Returns the closure of some paths, sorted by name. Leaves out paths that are not valid, and
    /// those whose rows do not parse, which it records.
    pub(crate) fn closure(&self, roots: &[StorePath]) -> Result<Vec<PathInfo>, StoreError> {
        let mut closure = Vec::new();
        self.visit_closure(roots, &mut |path| {
            Ok(match self.path_info_or_damaged_row(path)? {
                None => None,
                Some(Ok(info)) => {
                    let references = info.references.iter().cloned().collect();
                    closure.push(info);
                    Some(references)
                }
                Some(Err(row)) => {
                    self.skipped_rows.record(row);
                    self.references(path)?
                }
            })
        })?;
        closure.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(closure)
    }

    /// Returns the paths of a closure, also those whose rows do not parse.
    pub(crate) fn closure_paths(&self, roots: &[StorePath]) -> Result<Vec<StorePath>, StoreError> {
        let mut closure = Vec::new();
        self.visit_closure(roots, &mut |path| {
            let references = self.references(path)?;
            closure.extend(references.is_some().then(|| path.clone()));
            Ok(references)
        })?;
        Ok(closure)
    }

    /// Calls `visit`, which returns the references of a valid path, for each path of a closure.
    fn visit_closure(
        &self,
        roots: &[StorePath],
        visit: &mut dyn FnMut(&StorePath) -> Result<References, StoreError>,
    ) -> Result<(), StoreError> {
        let mut seen: BTreeSet<StorePath> = roots.iter().cloned().collect();
        let mut todo: Vec<StorePath> = seen.iter().cloned().collect();
        while let Some(path) = todo.pop() {
            let references = visit(&path)?.into_iter().flatten();
            todo.extend(references.filter(|path| seen.insert(path.clone())));
        }
        Ok(())
    }

    /// Calls `visit` with row number and full path of each row after row `after`, in any order. A
    /// call for all rows records those whose paths do not parse.
    pub(crate) fn for_each_path_after(
        &self,
        after: Option<i64>,
        visit: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), StoreError> {
        // Without a condition SQLite reads only the index of paths, a fraction of the table.
        let text = match after {
            None => "select id, path from ValidPaths",
            Some(_) => "select id, path from ValidPaths where id > ?1",
        };
        self.query("list the valid paths of", text, |query| {
            let mut rows = query.query(rusqlite::params_from_iter(after))?;
            while let Some(row) = rows.next()? {
                let (id, path) = (row.get(0)?, row.get_ref(1)?);
                if after.is_none() {
                    self.parse_listed_path(id, path);
                }
                visit(id, bytes_of(path));
            }
            Ok(())
        })
    }

    /// Makes all queries until the value is dropped see the database at one moment.
    pub(crate) fn begin_snapshot(&self) -> Result<Transaction<'_>, StoreError> {
        let behavior = TransactionBehavior::Deferred;
        Transaction::new_unchecked(&self.connection, behavior)
            .map_err(|source| super::database_error("read", &self.file, source))
    }

    /// Calls `visit` with each row, in the order of the row numbers. Records rows whose paths do
    /// not parse.
    pub(crate) fn for_each_row(&self, visit: &mut dyn FnMut(ListedRow)) -> Result<(), StoreError> {
        let text = "select id, path, narSize, deriver from ValidPaths order by id";
        self.query("list the valid paths of", text, |query| {
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                let (id, value) = (row.get(0)?, row.get_ref(1)?);
                let path = self.parse_listed_path(id, value);
                let nar_size = integer_cell(row.get_ref(2)?).ok().flatten();
                let deriver = text_cell(row.get_ref(3)?);
                let deriver = deriver.and_then(|text| self.parse_path_cell(text));
                visit(ListedRow {
                    row: id,
                    path: path.ok_or_else(|| bytes_of(value).to_vec()),
                    nar_size: nar_size.and_then(|size| u64::try_from(size).ok()),
                    deriver: deriver.ok().flatten().map(|deriver| deriver.hash_part()),
                });
            }
            Ok(())
        })
    }

    /// Returns all valid paths with their NAR sizes.
    pub(crate) fn paths_with_nar_sizes(&self) -> Result<Vec<(StorePath, u64)>, StoreError> {
        let mut paths = Vec::new();
        self.for_each_row(&mut |row| {
            let nar_size = row.nar_size.unwrap_or_default();
            paths.extend(row.path.ok().map(|path| (path, nar_size)));
        })?;
        Ok(paths)
    }

    /// Calls `visit` with the row numbers of referrer and reference of each reference, and `None`
    /// for what is not a number.
    pub(crate) fn for_each_reference(
        &self,
        visit: &mut dyn FnMut(i64, [Option<i64>; 2]),
    ) -> Result<(), StoreError> {
        let text = "select rowid, referrer, reference from Refs";
        self.query("list the references of", text, |query| {
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                let ends = [row.get_ref(1)?, row.get_ref(2)?];
                visit(
                    row.get(0)?,
                    ends.map(|end| integer_cell(end).ok().flatten()),
                );
            }
            Ok(())
        })
    }

    /// Calls `visit` with the row number of a valid derivation and the hash part of its output, for
    /// each known output.
    pub(crate) fn for_each_output(
        &self,
        visit: &mut dyn FnMut(i64, HashPart),
    ) -> Result<(), StoreError> {
        let text = "select drv, path from DerivationOutputs";
        self.query("list the outputs of", text, |query| {
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                let derivation = integer_cell(row.get_ref(0)?).ok().flatten();
                let output = text_cell(row.get_ref(1)?);
                let output = output.and_then(|text| self.parse_path_cell(text)).ok();
                if let Some((derivation, output)) = derivation.zip(output.flatten()) {
                    visit(derivation, output.hash_part());
                }
            }
            Ok(())
        })
    }

    /// Returns the highest row number that a path has or had; 0 if there was none.
    pub(crate) fn last_row(&self) -> Result<i64, StoreError> {
        // A deleted row keeps its number in the sequence.
        let text = "select max(coalesce((select max(id) from ValidPaths), 0), \
             coalesce((select max(seq) from sqlite_sequence where name = 'ValidPaths'), 0))";
        self.query("look up the last row of", text, |query| {
            query.query_row((), |row| row.get(0))
        })
    }

    /// Returns the paths with a higher row number.
    pub(crate) fn paths_after_row(&self, row: i64) -> Result<Vec<StorePath>, StoreError> {
        let text = "select id, path from ValidPaths where id > ?1";
        let found = self.query_paths("list the latest paths of", text, [row])?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// One statement reads the rows and their references, so that no write happens between them.
    /// The references of a row follow each other.
    fn rows_with_references(
        &self,
        text: &str,
        parameters: impl Params,
    ) -> Result<Vec<PathRow>, StoreError> {
        self.query("look up a path in", text, |query| {
            let mut rows = query.query(parameters)?;
            let mut found: Vec<PathRow> = Vec::new();
            while let Some(row) = rows.next()? {
                PathRow::read_joined(row, &mut found)?;
            }
            Ok(found)
        })
    }

    /// Parses a path of a row that only one query names.
    pub(super) fn parse_path(&self, text: &str) -> Result<StorePath, StoreError> {
        let parsed = self.layout.store_dir.parse(text);
        parsed.map_err(|error| self.unreadable(text, &error))
    }

    pub(super) fn parse_signatures(
        &self,
        row: &str,
        text: &str,
    ) -> Result<BTreeSet<Signature>, StoreError> {
        parse_signatures(text).map_err(|reason| self.unreadable(row, &reason))
    }

    pub(super) fn unreadable(&self, row: &str, reason: &dyn Display) -> StoreError {
        StoreError::InvalidRow {
            path: self.file.clone(),
            store_path: row.to_owned(),
            reason: reason.to_string(),
        }
    }

    fn invalid_row(&self, row: DamagedRow) -> StoreError {
        StoreError::InvalidRow {
            path: self.file.clone(),
            store_path: row.text,
            reason: row.reason,
        }
    }
}

/// The references of a path, or `None` if the path is not valid.
type References = Option<Vec<StorePath>>;

/// A row of ValidPaths in a list of all rows.
pub(crate) struct ListedRow {
    pub(crate) row: i64,
    /// The path, or the bytes that are not a path of this store.
    pub(crate) path: Result<StorePath, Vec<u8>>,
    /// The size of the NAR in bytes, if the row has it.
    pub(crate) nar_size: Option<u64>,
    /// The hash part of the deriver.
    pub(crate) deriver: Option<HashPart>,
}

/// The query for the row of a path.
static PATH_INFO: LazyLock<String> = LazyLock::new(|| path_info_query("v.path = ?1"));

/// The query for the rows of the paths with a hash part.
static PATH_INFO_OF_HASH_PART: LazyLock<String> = LazyLock::new(|| path_info_query(HAS_HASH_PART));

/// Returns a query for the rows of paths with a condition. It has one result per reference, or one
/// if there is none. Each has the columns of the path.
fn path_info_query(condition: &str) -> String {
    format!(
        "select {COLUMNS}, r.reference, t.path from ValidPaths v \
         left join Refs r on r.referrer = v.id left join ValidPaths t on t.id = r.reference \
         where {condition} order by v.path"
    )
}

/// The condition for the paths with a hash part, in the order of the index of paths.
const HAS_HASH_PART: &str = "v.path >= ?1 and v.path < ?2";
