//! The queries, one function each.

use std::collections::BTreeSet;
use std::fmt::Display;

use floe_format::{ContentAddress, Hash, HashPart, PathInfo, Signature, StorePath};
use rusqlite::{OptionalExtension as _, Params, Row, Transaction, TransactionBehavior};

use super::Database;
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
    pub(crate) fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        let text = self.layout.store_dir.full_path(path);
        let row = self.row_with_references(PATH_INFO, &text)?;
        row.map(|row| self.parse_row(row)).transpose()
    }

    /// Returns the row of the path with this hash part.
    pub(crate) fn path_info_from_hash_part(
        &self,
        part: HashPart,
    ) -> Result<Option<PathInfo>, StoreError> {
        let prefix = format!("{}/{part}", self.layout.store_dir.as_str());
        let row = self.row_with_references(PATH_INFO_OF_PREFIX, &prefix)?;
        let row = row.filter(|row| row.path.starts_with(&prefix));
        row.map(|row| self.parse_row(row)).transpose()
    }

    /// Returns the valid path with this hash part.
    pub(crate) fn query_path_from_hash_part(
        &self,
        part: HashPart,
    ) -> Result<Option<StorePath>, StoreError> {
        let prefix = format!("{}/{part}", self.layout.store_dir.as_str());
        let text = "select path from ValidPaths where path >= ?1 order by path limit 1";
        let found: Option<String> = self.query("look up a hash part in", text, |query| {
            query.query_row([&prefix], |row| row.get(0)).optional()
        })?;
        match found {
            Some(text) if text.starts_with(&prefix) => self.parse_path(&text).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns all valid paths, sorted by name.
    pub(crate) fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let text = "select path from ValidPaths order by path";
        self.query_paths("list the valid paths of", text, ())
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
        let rows: Vec<(i64, String)> = self.query("list the new paths of", text, |query| {
            let rows = query.query_map([row], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })?;
        let parse = |(row, text): (i64, String)| Ok((row, self.parse_path(&text)?));
        rows.into_iter().map(parse).collect()
    }

    /// Returns the valid paths that refer to a path, including the path itself if it refers to
    /// itself.
    pub(crate) fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        let text = "select v.path from Refs r join ValidPaths v on r.referrer = v.id \
             where r.reference = (select id from ValidPaths where path = ?1)";
        let path = self.layout.store_dir.full_path(path);
        self.query_paths("look up referrers in", text, [path])
    }

    fn query_paths(
        &self,
        action: &'static str,
        text: &str,
        parameters: impl Params,
    ) -> Result<Vec<StorePath>, StoreError> {
        let texts: Vec<String> = self.query(action, text, |query| {
            query.query_map(parameters, |row| row.get(0))?.collect()
        })?;
        texts.iter().map(|text| self.parse_path(text)).collect()
    }

    /// Returns the closure of some paths, sorted by name. Paths that are not valid are left out.
    pub(crate) fn closure(&self, roots: &[StorePath]) -> Result<Vec<PathInfo>, StoreError> {
        let mut seen: BTreeSet<StorePath> = roots.iter().cloned().collect();
        let mut todo: Vec<StorePath> = seen.iter().cloned().collect();
        let mut closure = Vec::new();
        while let Some(path) = todo.pop() {
            let Some(info) = self.path_info(&path)? else {
                continue;
            };
            let new = info
                .references
                .iter()
                .filter(|path| seen.insert((*path).clone()));
            todo.extend(new.cloned());
            closure.push(info);
        }
        closure.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(closure)
    }

    /// Calls `visit` with row number and full path of each row after row `after`, in any order.
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
                visit(row.get(0)?, row.get_ref(1)?.as_bytes()?);
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

    /// Calls `visit` with row number, path, NAR size and the hash part of the deriver of each valid
    /// path, in the order of the row numbers.
    pub(crate) fn for_each_row(
        &self,
        visit: &mut dyn FnMut(i64, StorePath, u64, Option<HashPart>),
    ) -> Result<(), StoreError> {
        let text = "select id, path, narSize, deriver from ValidPaths order by id";
        let mut invalid = Ok(());
        self.query("list the valid paths of", text, |query| {
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                let path = match self.parse_path(row.get_ref(1)?.as_str()?) {
                    Ok(path) => path,
                    Err(error) => {
                        invalid = Err(error);
                        break;
                    }
                };
                let nar_size = row.get::<_, Option<i64>>(2)?.unwrap_or(0);
                let deriver = row.get_ref(3)?.as_str_or_null()?;
                let deriver = deriver.and_then(|text| self.parse_path(text).ok());
                let deriver = deriver.map(|deriver| deriver.hash_part());
                let nar_size = u64::try_from(nar_size).unwrap_or(0);
                visit(row.get(0)?, path, nar_size, deriver);
            }
            Ok(())
        })?;
        invalid
    }

    /// Returns all valid paths with their NAR sizes.
    pub(crate) fn paths_with_nar_sizes(&self) -> Result<Vec<(StorePath, u64)>, StoreError> {
        let mut paths = Vec::new();
        self.for_each_row(&mut |_, path, nar_size, _| paths.push((path, nar_size)))?;
        Ok(paths)
    }

    /// Calls `visit` with the row numbers of referrer and reference of each reference.
    pub(crate) fn for_each_reference(
        &self,
        visit: &mut dyn FnMut(i64, i64),
    ) -> Result<(), StoreError> {
        let text = "select referrer, reference from Refs";
        self.query("list the references of", text, |query| {
            let mut rows = query.query(())?;
            while let Some(row) = rows.next()? {
                visit(row.get(0)?, row.get(1)?);
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
                if let Ok(output) = self.parse_path(row.get_ref(1)?.as_str()?) {
                    visit(row.get(0)?, output.hash_part());
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
        let text = "select path from ValidPaths where id > ?1";
        self.query_paths("list the latest paths of", text, [row])
    }

    /// One statement reads the row and its references, so that no write happens between them.
    fn row_with_references(&self, text: &str, key: &str) -> Result<Option<PathRow>, StoreError> {
        self.query("look up a path in", text, |query| {
            let mut rows = query.query([key])?;
            let mut found: Option<PathRow> = None;
            while let Some(row) = rows.next()? {
                let fields = match &mut found {
                    Some(fields) => fields,
                    None => found.insert(PathRow::read(row)?),
                };
                fields.references.extend(row.get::<_, Option<String>>(8)?);
            }
            Ok(found)
        })
    }

    fn parse_row(&self, fields: PathRow) -> Result<PathInfo, StoreError> {
        let path = self.parse_path(&fields.path)?;
        let row = path.as_str();
        let nar_hash = Hash::parse_prefixed(&fields.hash);
        let nar_hash = nar_hash.map_err(|error| self.invalid_row(row, &error))?;
        let deriver = match fields.deriver.as_deref() {
            None | Some("") => None,
            Some(text) => Some(self.parse_path(text)?),
        };
        let signatures = self.parse_signatures(row, &fields.sigs)?;
        let references = fields.references.iter().map(|text| self.parse_path(text));
        let references = references.collect::<Result<_, _>>()?;
        let ca = match fields.ca.as_str() {
            "" => Ok(None),
            text => ContentAddress::parse(text).map(Some),
        };
        let ca = ca.map_err(|error| self.invalid_row(row, &error))?;
        Ok(PathInfo {
            path,
            nar_hash,
            nar_size: u64::try_from(fields.nar_size).unwrap_or(0),
            references,
            deriver,
            signatures,
            ca,
            registration_time: u64::try_from(fields.registration_time).ok(),
            ultimate: fields.ultimate,
        })
    }

    pub(super) fn parse_path(&self, text: &str) -> Result<StorePath, StoreError> {
        let parsed = self.layout.store_dir.parse(text);
        parsed.map_err(|error| self.invalid_row(text, &error))
    }

    pub(super) fn parse_signatures(
        &self,
        row: &str,
        text: &str,
    ) -> Result<BTreeSet<Signature>, StoreError> {
        let signatures = text.split_ascii_whitespace().map(Signature::parse);
        let parsed: Result<_, _> = signatures.collect();
        parsed.map_err(|error| self.invalid_row(row, &error))
    }

    fn invalid_row(&self, row: &str, reason: &dyn Display) -> StoreError {
        StoreError::InvalidRow {
            path: self.file.clone(),
            store_path: row.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// One row of ValidPaths with its references, still as text.
struct PathRow {
    path: String,
    hash: String,
    registration_time: i64,
    deriver: Option<String>,
    nar_size: i64,
    ultimate: bool,
    sigs: String,
    ca: String,
    references: Vec<String>,
}

impl PathRow {
    /// Reads absent values as Nix does: a missing size is 0, missing signatures and addresses are
    /// "".
    fn read(row: &Row<'_>) -> rusqlite::Result<PathRow> {
        Ok(PathRow {
            path: row.get(0)?,
            hash: row.get(1)?,
            registration_time: row.get(2)?,
            deriver: row.get(3)?,
            nar_size: row.get::<_, Option<i64>>(4)?.unwrap_or(0),
            ultimate: row.get::<_, Option<i64>>(5)? == Some(1),
            sigs: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            ca: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
            references: Vec::new(),
        })
    }
}

/// Returns one row per reference, or one row if there is none. Each has the columns of the path.
const PATH_INFO: &str = "select v.path, v.hash, v.registrationTime, v.deriver, v.narSize, \
     v.ultimate, v.sigs, v.ca, t.path from ValidPaths v \
     left join Refs r on r.referrer = v.id left join ValidPaths t on t.id = r.reference \
     where v.path = ?1";

/// The same for the first path that is not less than the key.
const PATH_INFO_OF_PREFIX: &str = "select v.path, v.hash, v.registrationTime, v.deriver, \
     v.narSize, v.ultimate, v.sigs, v.ca, t.path from ValidPaths v \
     left join Refs r on r.referrer = v.id left join ValidPaths t on t.id = r.reference \
     where v.id = (select id from ValidPaths where path >= ?1 order by path limit 1)";
