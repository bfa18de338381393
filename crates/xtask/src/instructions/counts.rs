//! The file of committed counts: one row for each workload, with the reason of its last change.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, ensure};

use super::comparison::Comparison;

/// The committed counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The version of the Rust compiler of the last complete record.
    compiler: String,
    rows: BTreeMap<String, Row>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    count: u64,
    change: Option<Change>,
}

/// The last change of more than 2 %.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    before: u64,
    reason: String,
}

impl Counts {
    /// Parses the file.
    pub(super) fn parse(text: &str) -> Result<Counts> {
        let mut counts = Counts::default();
        for line in text.lines() {
            if let Some(compiler) = line.strip_prefix(COMPILER) {
                compiler.clone_into(&mut counts.compiler);
            }
            let is_row = line.starts_with("| ") && !line.starts_with("| workload ");
            if is_row {
                let (name, row) = Row::parse(line).with_context(|| format!("the row {line}"))?;
                let old = counts.rows.insert(name, row);
                ensure!(old.is_none(), "two rows have the name of {line}");
            }
        }
        Ok(counts)
    }

    pub(super) fn of(&self, name: &str) -> Option<u64> {
        self.rows.get(name).map(|row| row.count)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(String::as_str)
    }

    pub(super) fn compiler(&self) -> &str {
        &self.compiler
    }

    pub(super) fn set_compiler(&mut self, compiler: &str) {
        compiler.clone_into(&mut self.compiler);
    }

    /// Removes the rows whose names `keep` refuses.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.rows.retain(|name, _| keep(name));
    }

    /// Adds new counts, and replaces those that changed by more than 2 %. Returns the names of
    /// those that lack a reason, which stay.
    ///
    /// A count that changed less stays, too, so that many small changes add up to one that needs a
    /// reason.
    pub(super) fn record(
        &mut self,
        counted: &BTreeMap<String, u64>,
        reason: Option<&str>,
    ) -> Vec<String> {
        let mut unexplained = Vec::new();
        for (name, &count) in counted {
            let before = self.of(name);
            let change = match (Comparison::of(before, count), before, reason) {
                (Comparison::Same, ..) => continue,
                (_, Some(before), Some(reason)) => Some(Change {
                    before,
                    reason: reason.to_owned(),
                }),
                (_, Some(_), None) => {
                    unexplained.push(name.clone());
                    continue;
                }
                (_, None, _) => None,
            };
            self.rows.insert(name.clone(), Row { count, change });
        }
        unexplained
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{INTRODUCTION}\n\n{COMPILER}{}\n\n{HEAD}", self.compiler)?;
        for (name, row) in &self.rows {
            let count = with_commas(row.count);
            match &row.change {
                None => writeln!(f, "| {name} | {count} | | |")?,
                Some(Change { before, reason }) => {
                    let before = with_commas(*before);
                    writeln!(f, "| {name} | {count} | {before} | {reason} |")?;
                }
            }
        }
        Ok(())
    }
}

impl Row {
    fn parse(line: &str) -> Result<(String, Row)> {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", name, count, before, reason, ""] = cells[..] else {
            anyhow::bail!("it has {} cells, not 4", cells.len().saturating_sub(2));
        };
        let change = match (before, reason) {
            ("", "") => None,
            _ => Some(Change {
                before: parse_number(before)?,
                reason: Some(reason)
                    .filter(|reason| is_reason(reason))
                    .context("a change needs a reason")?
                    .to_owned(),
            }),
        };
        let count = parse_number(count)?;
        Ok((name.to_owned(), Row { count, change }))
    }
}

/// Whether a text can stand in a cell of the table.
pub(super) fn is_reason(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.contains(['|', '\n', '\r'])
}

fn parse_number(text: &str) -> Result<u64> {
    let digits = text.replace(',', "");
    digits.parse().with_context(|| format!("the number {text}"))
}

/// Prints a number with a comma before each three digits.
pub(super) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

const INTRODUCTION: &str = "\
# Instructions of fixed workloads

`cargo xtask instructions --record` writes this file. `cargo xtask test` counts again: it shows
changes of more than 2 %, and fails above 10 %. A row keeps the count before its last change, and
the reason. CONTRIBUTING.md describes how to read and change the counts.

The program has the profile of the tests, so the counts tell nothing about the speed of a release.";

const COMPILER: &str = "Last recorded on x86_64 with ";

const HEAD: &str = "\
| workload | instructions | before | reason of the change |
|---|---:|---:|---|";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(count: u64) -> BTreeMap<String, u64> {
        [("hash".to_owned(), count)].into()
    }

    #[test]
    fn large_change_needs_a_reason() {
        let mut counts = Counts::default();
        assert_eq!(counts.record(&counted(1000), None), [""; 0]);
        assert_eq!(counts.record(&counted(1021), None), ["hash"]);
        assert_eq!(counts.of("hash"), Some(1000));
        assert_eq!(counts.record(&counted(1021), Some("a check")), [""; 0]);
        assert_eq!(counts.of("hash"), Some(1021));
        let text = counts.to_string();
        assert!(
            text.ends_with("| hash | 1,021 | 1,000 | a check |\n"),
            "{text}"
        );
    }

    #[test]
    fn small_changes_add_up() {
        let mut counts = Counts::default();
        counts.record(&counted(1000), None);
        assert_eq!(counts.record(&counted(1015), None), [""; 0]);
        assert_eq!(counts.of("hash"), Some(1000));
        assert_eq!(counts.record(&counted(1030), None), ["hash"]);
    }

    #[test]
    fn invalid_rows_are_refused() {
        for row in [
            "| hash | 1 |",
            "| hash | x | | |",
            "| hash | 1 | 2 | |",
            "| hash | 1 | | a check |",
            "| hash | 1 | | |\n| hash | 1 | | |",
        ] {
            assert!(Counts::parse(row).is_err(), "{row}");
        }
    }

    fn row() -> impl Strategy<Value = Row> {
        let reason = "[a-zA-Z0-9,.:%`-]([a-zA-Z0-9 ,.:%`-]{0,30}[a-zA-Z0-9,.:%`-])?";
        let change = (any::<u64>(), reason).prop_map(|(before, reason)| Change { before, reason });
        let row = (any::<u64>(), prop::option::of(change));
        row.prop_map(|(count, change)| Row { count, change })
    }

    proptest! {
        #[test]
        fn printed_counts_parse_to_themselves(
            compiler in "rustc [0-9.]{1,8}",
            rows in prop::collection::btree_map("[a-z-]{1,20}", row(), 0..9),
        ) {
            let rows = rows.into_iter().filter(|(name, _)| name != "workload").collect();
            let counts = Counts { compiler, rows };
            prop_assert_eq!(Counts::parse(&counts.to_string()).unwrap(), counts);
        }
    }
}
