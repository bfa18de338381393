//! The metadata of all valid paths, some at a time.

use std::collections::HashSet;
use std::ops::ControlFlow;

use floe_format::{PathInfo, StorePath};
use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, Type, ValueRef};

use super::Database;
use super::damaged_rows::{Table, bytes_of};
use super::path_row::{COLUMNS, PathRow};
use crate::error::StoreError;

impl Database {
    /// Calls `visit` with what is registered about each valid path, sorted by name, until it
    /// breaks. Leaves out rows that do not parse, and records them.
    ///
    /// No transaction is open during a visit, which may wait for a user: a path that is registered
    /// or deleted meanwhile is visited or not.
    pub(crate) fn for_each_info(
        &self,
        visit: &mut dyn FnMut(PathInfo) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut damaged = self.damaged_rows()?;
        // The outputs of a derivation are not a part of its information.
        damaged.retain(|row| row.table != Table::DerivationOutputs);
        let unreadable: HashSet<StorePath> =
            damaged.iter().filter_map(|row| row.path.clone()).collect();
        damaged
            .into_iter()
            .for_each(|row| self.skipped_rows.record(row));
        let mut last = ListedValue {
            is_text: true,
            bytes: Vec::new(),
        };
        loop {
            let rows = self.rows_after(&mut last)?;
            if rows.is_empty() {
                return Ok(());
            }
            for row in rows {
                match self.parse_row(row) {
                    Ok(info) if unreadable.contains(&info.path) => {}
                    Ok(info) => {
                        if visit(info).is_break() {
                            return Ok(());
                        }
                    }
                    Err(row) => self.skipped_rows.record(row),
                }
            }
        }
    }

    /// Returns the next rows after a path, and replaces it by that of the last one.
    fn rows_after(&self, last: &mut ListedValue) -> Result<Vec<PathRow>, StoreError> {
        let text = format!(
            "select {COLUMNS}, r.reference, t.path \
             from (select * from ValidPaths where path > ?1 order by path limit {BATCH_LEN}) v \
             left join Refs r on r.referrer = v.id left join ValidPaths t on t.id = r.reference \
             order by v.path"
        );
        self.query("list the valid paths of", &text, |query| {
            let mut rows = query.query([&*last])?;
            let mut found: Vec<PathRow> = Vec::new();
            let mut path = None;
            while let Some(row) = rows.next()? {
                PathRow::read_joined(row, &mut found)?;
                let value = row.get_ref(1)?;
                path = Some(ListedValue {
                    is_text: value.data_type() == Type::Text,
                    bytes: bytes_of(value).to_vec(),
                });
            }
            drop(rows);
            *last = path.unwrap_or_default();
            Ok(found)
        })
    }
}

/// A path as SQLite has it: a text that is not always valid UTF-8, or a blob. Values of other types
/// are damaged rows, and sort before the empty text.
#[derive(Default)]
struct ListedValue {
    is_text: bool,
    bytes: Vec<u8>,
}

impl ToSql for ListedValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(if self.is_text {
            ValueRef::Text(&self.bytes)
        } else {
            ValueRef::Blob(&self.bytes)
        }))
    }
}

/// The number of rows that are read at once: few kilobytes for each.
const BATCH_LEN: usize = 500;
