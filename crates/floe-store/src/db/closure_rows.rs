//! The rows of a closure and the references between them, in little memory: a store may have a
//! million paths.

use std::collections::HashMap;

use floe_format::StorePath;
use rusqlite::Statement;
use rusqlite::types::ValueRef;

use super::Database;
use super::path_row::{COLUMNS, PathRow};
use crate::error::StoreError;

/// The valid paths of a closure, in any order.
#[derive(Debug, Default)]
pub(crate) struct ClosureRows {
    pub(crate) rows: Vec<ClosureRow>,
    /// For each path the place of its first reference in `references`, and the number of all
    /// references.
    pub(crate) starts: Vec<usize>,
    /// The places of the references in `rows`, without those of a path to itself.
    pub(crate) references: Vec<u32>,
}

/// A part of a row that has parsed as a whole.
#[derive(Clone, Debug)]
pub(crate) struct ClosureRow {
    pub(crate) path: StorePath,
    pub(crate) nar_size: u64,
    pub(crate) registration_time: Option<u64>,
}

/// The rows that a walk through the references has reached.
#[derive(Default)]
struct Walk {
    /// The row numbers in the order in which the walk has reached them.
    ids: Vec<i64>,
    places: HashMap<i64, u32>,
}

impl Walk {
    fn reach(&mut self, id: i64) -> u32 {
        let next = u32::try_from(self.ids.len()).unwrap_or(u32::MAX);
        *self.places.entry(id).or_insert_with(|| {
            self.ids.push(id);
            next
        })
    }
}

impl Database {
    /// Reads the closure of some paths at one moment, without those that are not valid. Returns
    /// `None` if a row or a reference does not parse, or if a reference names no row.
    pub(crate) fn closure_rows(
        &self,
        paths: &[StorePath],
    ) -> Result<Option<ClosureRows>, StoreError> {
        let _snapshot = self.begin_snapshot()?;
        let mut walk = Walk::default();
        self.query(ACTION, "select id from ValidPaths where path = ?1", |ids| {
            for path in paths {
                let path = self.layout.store_dir.full_path(path);
                let mut found = ids.query([path])?;
                if let Some(row) = found.next()? {
                    walk.reach(row.get(0)?);
                }
            }
            Ok(())
        })?;
        let row = format!("select {COLUMNS} from ValidPaths v where v.id = ?1");
        let references = "select reference from Refs where referrer = ?1";
        self.query(ACTION, &row, |row| {
            let mut closure = ClosureRows::default();
            let walked = self.query(ACTION, references, |references| {
                self.walk(&mut walk, (row, references), &mut closure)
            });
            Ok(walked.map(|is_whole| is_whole.then_some(closure)))
        })?
    }

    /// Reads all rows that the walk reaches. Returns `false` at the first damaged one.
    fn walk(
        &self,
        walk: &mut Walk,
        (row, references): (&mut Statement<'_>, &mut Statement<'_>),
        closure: &mut ClosureRows,
    ) -> rusqlite::Result<bool> {
        while let Some(id) = walk.ids.get(closure.rows.len()).copied() {
            let mut found = row.query([id])?;
            let Some(found) = found.next()? else {
                return Ok(false);
            };
            let Ok(info) = self.parse_row(PathRow::read(found)?) else {
                return Ok(false);
            };
            closure.starts.push(closure.references.len());
            let mut found = references.query([id])?;
            while let Some(found) = found.next()? {
                match found.get_ref(0)? {
                    ValueRef::Integer(reference) if reference == id => {}
                    ValueRef::Integer(reference) => {
                        closure.references.push(walk.reach(reference));
                    }
                    _ => return Ok(false),
                }
            }
            closure.rows.push(ClosureRow {
                path: info.path,
                nar_size: info.nar_size,
                registration_time: info.registration_time,
            });
        }
        closure.starts.push(closure.references.len());
        Ok(true)
    }
}

const ACTION: &str = "look up a closure in";
