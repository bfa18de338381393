//! Texts that several commands print.
//!
//! All other texts stand with the code that prints them. Errors have the form `cannot VERB OBJECT:
//! cause; try FIX`. Warnings begin with a verb.

use std::fmt::Display;
use std::path::Path;

use floe_store::DamagedRow;

/// `1 path`, `2 paths`.
pub(crate) fn counted(count: impl TryInto<usize>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(usize::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Escapes control characters: other users may name the links of a shared store.
pub(crate) fn escaped(place: impl Display) -> String {
    let place = place.to_string();
    let characters = place.chars().map(|c| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    });
    characters.collect()
}

pub(crate) fn directory(path: &Path) -> String {
    format!("cannot create the directory {}", path.display())
}

pub(crate) fn waiting_for_resource(resource: &str) -> String {
    format!("floe: waiting for {resource}")
}

// Rows of the database that do not parse

pub(crate) fn skipped_rows(rows: &[DamagedRow]) -> Option<String> {
    let rows = DamagedRow::describe(rows)?;
    Some(format!("skipping {rows}; try floe verify"))
}

pub(crate) fn kept_rows(rows: &[DamagedRow]) -> Option<String> {
    let lost = rows.iter().filter(|row| row.is_lost_reference()).cloned();
    if let Some(lost) = DamagedRow::describe(&lost.collect::<Vec<DamagedRow>>()) {
        return Some(format!(
            "keeping all paths and files of the store, because one of them may be the lost \
             reference in {lost}; try floe verify --repair"
        ));
    }
    let rows = DamagedRow::describe(rows)?;
    Some(format!(
        "keeping all paths in {rows}; try floe verify --repair"
    ))
}

#[cfg(test)]
mod tests;
