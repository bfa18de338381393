//! The results of a benchmark: what is printed, and what is kept in the repository.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use floe_bench::Report;

use crate::aims::{self, Aim, JudgedRow};
use crate::args::RunArgs;
use crate::before_after;
use crate::outcome::Outcome;

/// The results of `bench closures` or `bench serve`.
pub(crate) struct Results<'a> {
    /// The name of the files in bench/results and of the marks in docs/performance.md.
    pub(crate) name: &'static str,
    pub(crate) report: &'a Report,
    /// The aim of each row.
    pub(crate) aims: Vec<Aim>,
    /// Text before the tables.
    pub(crate) explanation: &'static str,
    /// Text after the tables.
    pub(crate) appendix: String,
}

impl Results<'_> {
    /// Prints the document, and writes the files that were asked for. Returns whether floe and its
    /// rival were measured in every row.
    pub(crate) fn publish(&self, root: &Path, args: &RunArgs) -> Result<bool> {
        let rows = self.report.rows.iter().zip(&self.aims);
        let judged: Vec<_> = rows.map(|(row, aim)| JudgedRow::new(row, *aim)).collect();
        let table = aims::table(&judged);
        let document = format!(
            "{}\n{}\n{table}\n{}\n{}{}",
            self.report.head(),
            self.explanation,
            aims::tally(&judged),
            self.report.table(),
            self.appendix
        );
        print!("{document}");
        write_samples(self.report, args.json.as_deref())?;
        if args.record {
            let results = root.join("bench/results");
            let chart = aims::chart(&self.report.title, &judged);
            write(&results.join(format!("{}.md", self.name)), &document)?;
            write(&results.join(format!("{}.svg", self.name)), &chart)?;
            record_table(root, self.name, &table)?;
        }
        Ok(judged.iter().all(JudgedRow::is_measured))
    }
}

/// Replaces a table in docs/performance.md.
fn record_table(root: &Path, name: &str, table: &str) -> Result<()> {
    let page = root.join(PAGE);
    let before = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    let after = replace_between_marks(&before, name, table);
    let after = after
        .with_context(|| format!("{PAGE} has no <!-- bench:{name} --> … <!-- /bench:{name} -->"))?;
    write(&page, &after)
}

/// Prints the comparison of two builds, and writes all samples to a file if one is given.
pub(crate) fn publish_comparison(report: &Report, json: Option<&Path>) -> Result<Outcome> {
    let (document, outcome) = before_after::compare(report);
    print!("{document}");
    write_samples(report, json)?;
    Ok(outcome)
}

fn write_samples(report: &Report, file: Option<&Path>) -> Result<()> {
    match file {
        Some(file) => write(file, &format!("{}\n", report.json())),
        None => Ok(()),
    }
}

/// The page with the tables, each between marks of its name.
const PAGE: &str = "docs/performance.md";

pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The document with the text between the marks of `name` replaced; `None` if a mark is missing.
fn replace_between_marks(document: &str, name: &str, text: &str) -> Option<String> {
    let (open, close) = (
        format!("<!-- bench:{name} -->"),
        format!("<!-- /bench:{name} -->"),
    );
    let (before, rest) = document.split_once(&open)?;
    let (_, after) = rest.split_once(&close)?;
    Some(format!("{before}{open}\n{text}{close}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_between_marks_is_replaced() {
        let document = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb\n";
        let after = replace_between_marks(document, "x", "| new |\n").unwrap();
        let expected = "a\n<!-- bench:x -->\n| new |\n<!-- /bench:x -->\nb\n";
        assert_eq!(after, expected);
        let again = replace_between_marks(&after, "x", "| new |\n");
        assert_eq!(again.as_deref(), Some(expected));
    }

    #[test]
    fn document_without_both_marks_is_refused() {
        for document in ["", "<!-- bench:x -->", "<!-- /bench:x --><!-- bench:x -->"] {
            assert_eq!(
                replace_between_marks(document, "x", "t"),
                None,
                "{document}"
            );
        }
    }

    #[test]
    fn page_has_the_marks_of_every_recorded_benchmark() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let names = [
            crate::closures::NAME,
            crate::serve::NAME,
            crate::scale::NAME,
        ];
        for name in names {
            assert!(replace_between_marks(&page, name, "").is_some(), "{name}");
        }
    }
}
