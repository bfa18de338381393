//! The questions, one function each.

use std::collections::BTreeSet;

use floe_format::{ContentAddress, Hash, PathInfo, Signature, StorePath};
use rusqlite::{OptionalExtension as _, Row};

use super::Database;
use crate::error::StoreError;

impl Database {
    /// Whether a path is valid.
    pub(crate) fn is_valid(&self, path: &StorePath) -> Result<bool, StoreError> {
        Ok(self.id(path)?.is_some())
    }

    /// The row number of a valid path.
    pub(crate) fn id(&self, path: &StorePath) -> Result<Option<i64>, StoreError> {
        self.connection
            .prepare_cached("select id from ValidPaths where path = ?1")
            .and_then(|mut query| {
                query
                    .query_row([self.layout.store_dir.print(path)], |row| row.get(0))
                    .optional()
            })
            .map_err(self.failed("looking up a path"))
    }

    /// Everything that the database knows of a path; `None` if it is not valid.
    pub(crate) fn path_info(&self, path: &StorePath) -> Result<Option<PathInfo>, StoreError> {
        let text = self.layout.store_dir.print(path);
        let found = self
            .connection
            .prepare_cached(
                "select id, hash, registrationTime, deriver, narSize, ultimate, sigs, ca \
                 from ValidPaths where path = ?1",
            )
            .and_then(|mut query| query.query_row([&text], Fields::read).optional())
            .map_err(self.failed("looking up a path"))?;
        let Some(fields) = found else { return Ok(None) };
        let references = self.references(fields.id)?;
        self.parse_fields(path, fields, references).map(Some)
    }

    /// The valid path with that hash part.
    pub(crate) fn path_of_hash_part(&self, part: &str) -> Result<Option<StorePath>, StoreError> {
        let prefix = format!("{}/{part}", self.layout.store_dir.as_str());
        let found: Option<String> = self
            .connection
            .prepare_cached("select path from ValidPaths where path >= ?1 order by path limit 1")
            .and_then(|mut query| query.query_row([&prefix], |row| row.get(0)).optional())
            .map_err(self.failed("looking up a hash part"))?;
        match found {
            Some(text) if text.starts_with(&prefix) => self.parse_path(&text).map(Some),
            _ => Ok(None),
        }
    }

    /// Every valid path, in the order of their names.
    pub(crate) fn valid_paths(&self) -> Result<Vec<StorePath>, StoreError> {
        let texts = self
            .connection
            .prepare_cached("select path from ValidPaths order by path")
            .and_then(|mut query| query.query_map((), |row| row.get(0))?.collect())
            .map_err(self.failed("listing the valid paths"))?;
        self.parse_paths(texts)
    }

    /// The valid paths that refer to a path, itself included if it does.
    pub(crate) fn referrers(&self, path: &StorePath) -> Result<Vec<StorePath>, StoreError> {
        let texts = self
            .connection
            .prepare_cached(
                "select v.path from Refs r join ValidPaths v on r.referrer = v.id \
                 where r.reference = (select id from ValidPaths where path = ?1)",
            )
            .and_then(|mut query| {
                let path = self.layout.store_dir.print(path);
                query.query_map([path], |row| row.get(0))?.collect()
            })
            .map_err(self.failed("looking up referrers"))?;
        self.parse_paths(texts)
    }

    /// The closure of some paths, in the order of their names; what is not valid is left out.
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

    fn references(&self, id: i64) -> Result<BTreeSet<StorePath>, StoreError> {
        let texts: Vec<String> = self
            .connection
            .prepare_cached(
                "select v.path from Refs r join ValidPaths v on r.reference = v.id \
                 where r.referrer = ?1",
            )
            .and_then(|mut query| query.query_map([id], |row| row.get(0))?.collect())
            .map_err(self.failed("looking up references"))?;
        texts.iter().map(|text| self.parse_path(text)).collect()
    }

    fn parse_fields(
        &self,
        path: &StorePath,
        fields: Fields,
        references: BTreeSet<StorePath>,
    ) -> Result<PathInfo, StoreError> {
        let broken = |reason: String| StoreError::BrokenRow {
            path: self.file.clone(),
            store_path: path.to_string(),
            reason,
        };
        let nar_hash =
            Hash::parse_prefixed(&fields.hash).map_err(|error| broken(error.to_string()))?;
        let deriver = match fields.deriver.as_deref() {
            None | Some("") => None,
            Some(text) => Some(self.parse_path(text)?),
        };
        let signatures = fields
            .sigs
            .split_ascii_whitespace()
            .map(Signature::parse)
            .collect::<Result<_, _>>()
            .map_err(|error| broken(error.to_string()))?;
        let ca = match fields.ca.as_str() {
            "" => None,
            text => Some(ContentAddress::parse(text).map_err(|error| broken(error.to_string()))?),
        };
        Ok(PathInfo {
            path: path.clone(),
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

    fn parse_path(&self, text: &str) -> Result<StorePath, StoreError> {
        self.layout
            .store_dir
            .parse(text)
            .map_err(|error| StoreError::BrokenRow {
                path: self.file.clone(),
                store_path: text.to_owned(),
                reason: error.to_string(),
            })
    }
}

/// One row of ValidPaths, still as text.
struct Fields {
    id: i64,
    hash: String,
    registration_time: i64,
    deriver: Option<String>,
    nar_size: i64,
    ultimate: bool,
    sigs: String,
    ca: String,
}

impl Fields {
    /// Absent values read as Nix reads them: no size is 0, no signatures and no address are "".
    fn read(row: &Row<'_>) -> rusqlite::Result<Fields> {
        Ok(Fields {
            id: row.get(0)?,
            hash: row.get(1)?,
            registration_time: row.get(2)?,
            deriver: row.get(3)?,
            nar_size: row.get::<_, Option<i64>>(4)?.unwrap_or(0),
            ultimate: row.get::<_, Option<i64>>(5)? == Some(1),
            sigs: row.get::<_, Option<String>>(6)?.unwrap_or_default(),
            ca: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        })
    }
}
