//! The queries, one function each.

use std::collections::BTreeSet;

use floe_format::{ContentAddress, Hash, PathInfo, Signature, StorePath};
use rusqlite::{OptionalExtension as _, Row};

use super::Database;
use crate::error::StoreError;

impl Database {
    /// Whether a path is valid.
    pub(crate) fn is_valid(&self, path: &StorePath) -> Result<bool, StoreError> {
        Ok(self.path_id(path)?.is_some())
    }

    /// The row number of a valid path.
    pub(crate) fn path_id(&self, path: &StorePath) -> Result<Option<i64>, StoreError> {
        self.connection
            .prepare_cached("select id from ValidPaths where path = ?1")
            .and_then(|mut query| {
                query
                    .query_row([self.layout.store_dir.full_path(path)], |row| row.get(0))
                    .optional()
            })
            .map_err(self.database_error("looking up a path"))
    }

    /// Returns the row of a path with its references, or `None` if the path is not valid.
    pub(crate) fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        let text = self.layout.store_dir.full_path(path);
        self.row_with_references(PATH_INFO, &text)?
            .map(|row| self.parse_row(row))
            .transpose()
    }

    /// Returns the row of the path with this hash part.
    pub(crate) fn path_info_from_hash_part(
        &self,
        part: &str,
    ) -> Result<Option<PathInfo>, StoreError> {
        let prefix = format!("{}/{part}", self.layout.store_dir.as_str());
        self.row_with_references(PATH_INFO_OF_PREFIX, &prefix)?
            .filter(|row| row.path.starts_with(&prefix))
            .map(|row| self.parse_row(row))
            .transpose()
    }

    /// Returns the valid path with this hash part.
    pub(crate) fn query_path_from_hash_part(
        &self,
        part: &str,
    ) -> Result<Option<StorePath>, StoreError> {
        let prefix = format!("{}/{part}", self.layout.store_dir.as_str());
        let found: Option<String> = self
            .connection
            .prepare_cached("select path from ValidPaths where path >= ?1 order by path limit 1")
            .and_then(|mut query| query.query_row([&prefix], |row| row.get(0)).optional())
            .map_err(self.database_error("looking up a hash part"))?;
        match found {
            Some(text) if text.starts_with(&prefix) => self.parse_path(&text).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns all valid paths, sorted by name.
    pub(crate) fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let texts = self
            .connection
            .prepare_cached("select path from ValidPaths order by path")
            .and_then(|mut query| query.query_map((), |row| row.get(0))?.collect())
            .map_err(self.database_error("listing the valid paths"))?;
        self.parse_paths(texts)
    }

    /// Returns the valid paths that refer to a path, including the path itself if it refers to
    /// itself.
    pub(crate) fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        let texts = self
            .connection
            .prepare_cached(
                "select v.path from Refs r join ValidPaths v on r.referrer = v.id \
                 where r.reference = (select id from ValidPaths where path = ?1)",
            )
            .and_then(|mut query| {
                let path = self.layout.store_dir.full_path(path);
                query.query_map([path], |row| row.get(0))?.collect()
            })
            .map_err(self.database_error("looking up referrers"))?;
        self.parse_paths(texts)
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
            todo.extend(
                info.references
                    .iter()
                    .filter(|r| seen.insert((*r).clone()))
                    .cloned(),
            );
            closure.push(info);
        }
        closure.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(closure)
    }

    /// Calls `visit` with row number and full path of each row after `id`, in any order.
    pub(crate) fn for_each_path_after(
        &self,
        id: Option<i64>,
        visit: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), StoreError> {
        // Without a condition SQLite reads only the index of paths, a fraction of the table.
        let (text, after) = match id {
            None => ("select id, path from ValidPaths", None),
            Some(id) => ("select id, path from ValidPaths where id > ?1", Some(id)),
        };
        self.connection
            .prepare_cached(text)
            .and_then(|mut query| {
                let mut rows = query.query(rusqlite::params_from_iter(after))?;
                while let Some(row) = rows.next()? {
                    visit(row.get(0)?, row.get_ref(1)?.as_bytes()?);
                }
                Ok(())
            })
            .map_err(self.database_error("listing the valid paths"))
    }

    /// One statement reads the row and its references, so that no write happens between them.
    fn row_with_references(&self, text: &str, key: &str) -> Result<Option<PathRow>, StoreError> {
        self.connection
            .prepare_cached(text)
            .and_then(|mut query| {
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
            .map_err(self.database_error("looking up a path"))
    }

    fn parse_row(&self, fields: PathRow) -> Result<PathInfo, StoreError> {
        let path = self.parse_path(&fields.path)?;
        let broken = |reason: String| self.invalid_row(&path.to_string(), reason);
        let nar_hash =
            Hash::parse_prefixed(&fields.hash).map_err(|error| broken(error.to_string()))?;
        let deriver = match fields.deriver.as_deref() {
            None | Some("") => None,
            Some(text) => Some(self.parse_path(text)?),
        };
        let signatures = self.parse_signatures(path.as_str(), &fields.sigs)?;
        let references = fields
            .references
            .iter()
            .map(|text| self.parse_path(text))
            .collect::<Result<_, _>>()?;
        let ca = match fields.ca.as_str() {
            "" => None,
            text => Some(ContentAddress::parse(text).map_err(|error| broken(error.to_string()))?),
        };
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

    fn parse_paths(&self, texts: Vec<String>) -> Result<Vec<StorePath>, StoreError> {
        texts.iter().map(|text| self.parse_path(text)).collect()
    }

    pub(super) fn parse_path(&self, text: &str) -> Result<StorePath, StoreError> {
        let parsed = self.layout.store_dir.parse(text);
        parsed.map_err(|error| self.invalid_row(text, error.to_string()))
    }

    pub(super) fn parse_signatures(
        &self,
        row: &str,
        text: &str,
    ) -> Result<BTreeSet<Signature>, StoreError> {
        text.split_ascii_whitespace()
            .map(Signature::parse)
            .collect::<Result<_, _>>()
            .map_err(|error| self.invalid_row(row, error.to_string()))
    }

    fn invalid_row(&self, row: &str, reason: String) -> StoreError {
        StoreError::InvalidRow {
            path: self.file.clone(),
            store_path: row.to_owned(),
            reason,
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
