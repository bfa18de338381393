//! One row of `ValidPaths` with its references, as SQLite returns it and parsed.

use std::collections::BTreeSet;
use std::fmt::Display;

use floe_format::{ContentAddress, Hash, PathInfo, Signature, StorePath};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::Database;
use super::damaged_rows::{
    Cell, DamagedRow, Faults, Table, bytes_of, integer_cell, printable, text_cell,
};

/// The columns that [`PathRow::read`] expects first.
pub(super) const COLUMNS: &str = "v.id, v.path, v.hash, v.registrationTime, v.deriver, v.narSize, \
     v.ultimate, v.sigs, v.ca";

/// One row of ValidPaths with its references, not parsed.
pub(super) struct PathRow {
    pub(super) id: i64,
    /// The bytes of the path, whatever their type is.
    bytes: Vec<u8>,
    path: Cell<String>,
    hash: Cell<String>,
    registration_time: Cell<i64>,
    deriver: Cell<String>,
    nar_size: Cell<i64>,
    ultimate: Cell<i64>,
    sigs: Cell<String>,
    ca: Cell<String>,
    references: Vec<Reference>,
}

/// A reference: the number of its row, and its path if there is such a row.
struct Reference {
    row: Cell<i64>,
    path: Cell<String>,
}

impl PathRow {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<PathRow> {
        let text = |index| row.get_ref(index).map(owned_text);
        let integer = |index| row.get_ref(index).map(integer_cell);
        Ok(PathRow {
            id: row.get(0)?,
            bytes: bytes_of(row.get_ref(1)?).to_vec(),
            path: text(1)?,
            hash: text(2)?,
            registration_time: integer(3)?,
            deriver: text(4)?,
            nar_size: integer(5)?,
            ultimate: integer(6)?,
            sigs: text(7)?,
            ca: text(8)?,
            references: Vec::new(),
        })
    }

    /// Reads a result of a query that has one result per reference, or one if there is none. The
    /// results of a path follow each other.
    pub(super) fn read_joined(row: &Row<'_>, found: &mut Vec<PathRow>) -> rusqlite::Result<()> {
        if found.last().map(|last| last.id) != Some(row.get(0)?) {
            found.push(PathRow::read(row)?);
        }
        match found.last_mut() {
            Some(last) => last.read_reference(row),
            None => Ok(()),
        }
    }

    /// Adds the reference in the two columns after those of the path: the number of its row, and
    /// its path. Both are NULL if the path has no references.
    fn read_reference(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let number = integer_cell(row.get_ref(9)?);
        if number != Ok(None) {
            let path = owned_text(row.get_ref(10)?);
            self.references.push(Reference { row: number, path });
        }
        Ok(())
    }
}

impl Database {
    /// Parses a row. A missing size is 0, and missing signatures and addresses are empty, as in
    /// Nix.
    pub(super) fn parse_row(&self, row: PathRow) -> Result<PathInfo, DamagedRow> {
        let mut faults = Faults::default();
        let path = row.path.and_then(|text| self.parse_path_cell(text));
        let path = faults.require("path", path);
        let hash = row.hash.and_then(|text| parse(text, Hash::parse_prefixed));
        let nar_hash = faults.require("hash", hash);
        let registration_time = faults.require("registrationTime", row.registration_time);
        let deriver = row.deriver.map(|text| text.filter(|it| !it.is_empty()));
        let deriver = deriver.and_then(|text| parse(text, |it| self.layout.store_dir.parse(it)));
        let deriver = faults.check("deriver", deriver).flatten();
        let nar_size = faults.check("narSize", row.nar_size.and_then(parse_nar_size));
        let ultimate = faults.check("ultimate", row.ultimate).flatten();
        let signatures = row.sigs.map(Option::unwrap_or_default);
        let signatures = signatures.and_then(|text| parse_signatures(&text));
        let signatures = faults.check("sigs", signatures);
        let ca = row.ca.map(|text| text.filter(|it| !it.is_empty()));
        let ca = ca.and_then(|text| parse(text, ContentAddress::parse));
        let ca = faults.check("ca", ca).flatten();
        let mut references = BTreeSet::new();
        for reference in row.references {
            references.extend(faults.check("reference", self.parse_reference(reference)));
        }
        let path_of_row = path.clone();
        match (faults.reason(), path, nar_hash) {
            (None, Some(path), Some(nar_hash)) => Ok(PathInfo {
                path,
                nar_hash,
                nar_size: nar_size.unwrap_or_default(),
                references,
                deriver,
                signatures: signatures.unwrap_or_default(),
                ca,
                registration_time: registration_time.and_then(|time| u64::try_from(time).ok()),
                ultimate: ultimate == Some(1),
            }),
            (reason, ..) => Err(DamagedRow {
                table: Table::ValidPaths,
                row: row.id,
                text: printable(&row.bytes),
                path: path_of_row,
                reason: reason.unwrap_or_default(),
            }),
        }
    }

    /// Parses the path of a row, and records the row if it does not parse.
    pub(super) fn parse_listed_path(&self, id: i64, value: ValueRef<'_>) -> Option<StorePath> {
        let mut faults = Faults::default();
        let parsed = text_cell(value).and_then(|text| self.parse_path_cell(text));
        let parsed = faults.require("path", parsed);
        if let Some(reason) = faults.reason() {
            self.skipped_rows.record(DamagedRow {
                table: Table::ValidPaths,
                row: id,
                text: printable(bytes_of(value)),
                path: None,
                reason,
            });
        }
        parsed
    }

    pub(super) fn parse_path_cell(&self, text: Option<impl AsRef<str>>) -> Cell<StorePath> {
        let dir = &self.layout.store_dir;
        parse(text, |text| dir.parse(text).map_err(|error| error.reason()))
    }

    fn parse_reference(&self, reference: Reference) -> Result<StorePath, String> {
        let Some(row) = reference.row? else {
            return Err("it is NULL".into());
        };
        let path = reference.path.and_then(|text| self.parse_path_cell(text));
        match path {
            Ok(Some(path)) => Ok(path),
            Ok(None) => Err(format!("there is no row {row}")),
            Err(reason) => Err(format!("row {row} does not parse: {reason}")),
        }
    }
}

fn owned_text(value: ValueRef<'_>) -> Cell<String> {
    text_cell(value).map(|text| text.map(str::to_owned))
}

fn parse<T, E: Display>(
    text: Option<impl AsRef<str>>,
    parser: impl FnOnce(&str) -> Result<T, E>,
) -> Cell<T> {
    let parsed = text.map(|text| parser(text.as_ref())).transpose();
    parsed.map_err(|error| printable(error.to_string().as_bytes()))
}

fn parse_nar_size(size: Option<i64>) -> Result<u64, String> {
    let size = size.unwrap_or_default();
    u64::try_from(size).map_err(|_| format!("{size} is negative"))
}

pub(super) fn parse_signatures(text: &str) -> Result<BTreeSet<Signature>, String> {
    let signatures = text.split_ascii_whitespace().map(Signature::parse);
    let parsed: Result<_, _> = signatures.collect();
    parsed.map_err(|error| error.to_string())
}
