//! Rows of the database that do not parse, because of damage or of another program.
//!
//! A query for one path fails if its row is damaged. A query for many rows leaves damaged ones out
//! and records them, so that a command can report them with one warning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use floe_format::StorePath;
use rusqlite::types::{Type, ValueRef};

/// A row that does not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// The table.
    pub table: Table,
    /// The number of the row in its table.
    pub row: i64,
    /// The text of the path that the row describes, or the name of the table if there is none. It
    /// is printable: other characters are escaped.
    pub text: String,
    /// The path that the row describes, if it is one of this store: the row can be replaced. A row
    /// without such a path means nothing, and can be removed.
    pub path: Option<StorePath>,
    /// The columns that do not parse, each with the reason.
    pub reason: String,
}

/// A table with rows about paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// The valid paths.
    ValidPaths,
    /// The references of valid paths.
    Refs,
    /// The outputs of valid derivations.
    DerivationOutputs,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Table::ValidPaths => "ValidPaths",
            Table::Refs => "Refs",
            Table::DerivationOutputs => "DerivationOutputs",
        })
    }
}

impl fmt::Display for DamagedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of {}: {}", self.row, self.table, self.reason)
    }
}

impl DamagedRow {
    /// Whether the row is a reference of the valid path [`DamagedRow::path`] to an unknown path.
    pub fn is_lost_reference(&self) -> bool {
        self.table == Table::Refs && self.path.is_some()
    }

    /// Describes rows by their number and the first one. Returns `None` if there are none.
    pub fn describe(rows: &[DamagedRow]) -> Option<String> {
        let first = rows.first()?;
        let DamagedRow { text, .. } = first;
        Some(match rows.len() {
            1 => format!("a damaged row of the database ({text}, {first})"),
            count => {
                format!("{count} damaged rows of the database (first {text}, {first})")
            }
        })
    }

    pub(super) fn dangling_reference(row: i64, referrer: Option<i64>) -> DamagedRow {
        let reason = match referrer {
            Some(referrer) => format!("referrer: there is no row {referrer}"),
            None => "referrer: it is not an integer".into(),
        };
        DamagedRow {
            table: Table::Refs,
            row,
            text: Table::Refs.to_string(),
            path: None,
            reason,
        }
    }
}

impl DamagedRow {
    pub(super) fn lost_reference(
        row: i64,
        text: String,
        path: &StorePath,
        reference: Option<i64>,
    ) -> DamagedRow {
        let reason = match reference {
            Some(reference) => format!("reference: there is no row {reference} that parses"),
            None => "reference: it is not an integer".into(),
        };
        DamagedRow {
            table: Table::Refs,
            row,
            text,
            path: Some(path.clone()),
            reason,
        }
    }
}

/// The damaged rows that the queries of a connection have left out.
#[derive(Debug, Default)]
pub(super) struct SkippedRows(RefCell<BTreeMap<(Table, i64), DamagedRow>>);

impl SkippedRows {
    /// Records a row. Several queries may meet it.
    pub(super) fn record(&self, row: DamagedRow) {
        self.0.borrow_mut().insert((row.table, row.row), row);
    }

    pub(super) fn all(&self) -> Vec<DamagedRow> {
        self.0.borrow().values().cloned().collect()
    }
}

/// The value of a column: `None` if it is NULL, or the reason why it has not the expected type.
pub(super) type Cell<T> = Result<Option<T>, String>;

/// Reads a column that holds text.
pub(super) fn text_cell(value: ValueRef<'_>) -> Cell<&str> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err("it is not UTF-8".into()),
        },
        other => Err(wrong_type(other, "text")),
    }
}

/// Reads a column that holds an integer.
pub(super) fn integer_cell(value: ValueRef<'_>) -> Cell<i64> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number)),
        other => Err(wrong_type(other, "an integer")),
    }
}

/// Returns the bytes of a text or blob.
pub(super) fn bytes_of(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => b"",
    }
}

/// Returns bytes as printable text.
pub(super) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let escape = |character: char| {
        if character.is_control() {
            character.escape_default().to_string()
        } else {
            character.to_string()
        }
    };
    text.chars().map(escape).collect()
}

fn wrong_type(value: ValueRef<'_>, expected: &str) -> String {
    let found = match value.data_type() {
        Type::Null => "NULL",
        Type::Integer => "an integer",
        Type::Real => "a real number",
        Type::Text => "text",
        Type::Blob => "a blob",
    };
    format!("it is {found} instead of {expected}")
}

/// The columns of one row that do not parse.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<String>);

impl Faults {
    /// Returns the value of a column, or records why it has none.
    pub(super) fn check<T>(&mut self, column: &str, parsed: Result<T, String>) -> Option<T> {
        let noted = parsed.map_err(|reason| self.add(column, &reason));
        noted.ok()
    }

    /// As [`Faults::check`], for a column that must not be NULL.
    pub(super) fn require<T>(&mut self, column: &str, parsed: Cell<T>) -> Option<T> {
        self.check(column, parsed.and_then(|it| it.ok_or("it is NULL".into())))
    }

    pub(super) fn add(&mut self, column: &str, reason: &str) {
        self.0.push(format!("{column}: {reason}"));
    }

    /// Returns the text for all columns, or `None` if there is no fault.
    pub(super) fn reason(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(", "))
    }
}
