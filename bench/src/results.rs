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
    /// The name of the files in bench/results.
    pub(crate) name: &'static str,
    /// The tables in docs/performance.md: the name of their marks, and all rows in their order. A
    /// row that was not measured keeps its line.
    pub(crate) tables: Vec<(&'static str, Vec<String>)>,
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
            // A row that failed must not replace the figures of an earlier run.
            let measured = judged.iter().copied().filter(JudgedRow::is_measured);
            let measured: Vec<JudgedRow<'_>> = measured.collect();
            if self.is_whole(&measured) {
                let results = root.join("bench/results");
                let chart = aims::chart(&self.report.title, &measured);
                write(&results.join(format!("{}.md", self.name)), &document)?;
                write(&results.join(format!("{}.svg", self.name)), &chart)?;
            }
            for (mark, names) in &self.tables {
                let rows = measured.iter().filter(|row| names.contains(row.name()));
                let rows: Vec<JudgedRow<'_>> = rows.copied().collect();
                if !rows.is_empty() {
                    record_table(root, mark, (names, &aims::table(&rows)))?;
                }
            }
        }
        Ok(judged.iter().all(JudgedRow::is_measured))
    }

    /// Whether every row was measured. A part must not replace the files of the whole.
    fn is_whole(&self, measured: &[JudgedRow<'_>]) -> bool {
        let has_row = |name: &String| measured.iter().any(|row| row.name() == name);
        let mut names = self.tables.iter().flat_map(|(_, names)| names);
        names.all(has_row)
    }
}

/// Replaces the lines of rows in a table of docs/performance.md.
pub(crate) fn record_table(
    root: &Path,
    name: &str,
    (names, table): (&[String], &str),
) -> Result<()> {
    let page = root.join(PAGE);
    let before = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    let old = between_marks(&before, name).unwrap_or_default();
    let table = merged(old, table, names).with_context(|| {
        format!("cannot record a part of {name}: {PAGE} has other columns; measure all rows")
    })?;
    let after = replace_between_marks(&before, name, &table);
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

fn between_marks<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&format!("<!-- bench:{name} -->"))?;
    let (text, _) = rest.split_once(&format!("<!-- /bench:{name} -->"))?;
    Some(text)
}

/// A table with the lines of `new`, and those of `old` for rows that `new` lacks; `None` if `old`
/// has other columns, and `new` is only a part. Lines of no row are lost.
fn merged(old: &str, new: &str, names: &[String]) -> Option<String> {
    let mut lines = new.lines();
    let heads: Vec<&str> = lines.by_ref().take(HEAD_LINES).collect();
    let new: Vec<&str> = lines.collect();
    let mut old = old.trim_start().lines();
    let has_same_heads = old.by_ref().take(HEAD_LINES).eq(heads.iter().copied());
    let old: Vec<&str> = old.collect();
    let has_lines = !old.is_empty();
    let old = if has_same_heads { old } else { Vec::new() };
    let line_of = |lines: &[&str], name: &str| {
        let begin = format!("| {name} |");
        let line = lines.iter().find(|line| line.starts_with(&begin));
        line.map(|line| format!("{line}\n"))
    };
    let lacks_row = names.iter().any(|name| line_of(&new, name).is_none());
    if has_lines && !has_same_heads && lacks_row {
        return None;
    }
    let mut text: String = heads.iter().map(|line| format!("{line}\n")).collect();
    for name in names {
        let line = line_of(&new, name).or_else(|| line_of(&old, name));
        text += &line.unwrap_or_default();
    }
    Some(text)
}

/// The headings of a table and the line below them.
const HEAD_LINES: usize = 2;

#[cfg(test)]
mod tests {
    use floe_bench::{Measurement, Row, Sample, Unit};
    use serde_json::json;

    use super::*;
    use crate::aims::{FLOE, NO_RIVAL};

    #[test]
    fn rows_that_were_not_measured_keep_their_lines() {
        let heads = "| work | floe |\n|---|---|\n";
        let old = format!("\n{heads}| a | 1 s |\n| gone | 1 s |\n| c | 1 s |\n");
        let new = format!("{heads}| b | 2 s |\n| c | 2 s |\n");
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        let found = merged(&old, &new, &names);
        let expected = format!("{heads}| a | 1 s |\n| b | 2 s |\n| c | 2 s |\n");
        assert_eq!(found, Some(expected));
        let other = old.replace("| floe |", "| time |");
        assert_eq!(merged(&other, &new, &names), None);
        assert_eq!(merged(&other, &new, &names[1..3]), Some(new.clone()));
        assert_eq!(merged("", &new, &names), Some(new));
    }

    #[test]
    fn row_that_failed_keeps_its_line_and_the_files_of_the_whole() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        write(PAGE, "<!-- bench:x -->\n<!-- /bench:x -->\n");
        write("bench/results/x.md", "old");
        let row = |name: &str, measurement| Row {
            name: name.into(),
            unit: Unit::Run,
            facts: json!({}),
            measurements: vec![(FLOE.into(), measurement)],
        };
        let ran = Measurement::Ran(vec![Sample::timed(1.0, 1.0); 3]);
        let publish = |second: &Measurement| {
            let report = Report {
                title: "x".into(),
                machine: json!({}),
                notes: Vec::new(),
                rows: vec![row("a", ran.clone()), row("b", second.clone())],
                interrupted: false,
            };
            let results = Results {
                name: "x",
                tables: vec![("x", vec!["a".into(), "b".into()])],
                report: &report,
                aims: vec![Aim::none(NO_RIVAL); 2],
                explanation: "",
                appendix: String::new(),
            };
            let args = RunArgs {
                record: true,
                ..RunArgs::default()
            };
            results.publish(root.path(), &args).unwrap()
        };
        let failed = Measurement::Failed("no store".into());
        assert!(!publish(&failed));
        assert!(!read(PAGE).contains("| b |"));
        assert_eq!(read("bench/results/x.md"), "old");
        assert!(publish(&ran));
        let page = read(PAGE);
        assert!(page.contains("| a |") && page.contains("| b |"), "{page}");
        assert!(read("bench/results/x.md").contains("| b |"));
        assert!(!publish(&failed));
        assert_eq!(read(PAGE), page);
    }

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

    /// The marks of all tables that benchmarks write.
    const PAGE_TABLES: [&str; 8] = [
        crate::closures::NAME,
        crate::closures::COLLECT,
        "network",
        "upload",
        "remote",
        crate::serve::NAME,
        crate::serve::many_connections::NAME,
        crate::scale::NAME,
    ];

    #[test]
    fn page_has_the_marks_of_every_recorded_benchmark() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        for name in PAGE_TABLES {
            assert!(replace_between_marks(&page, name, "").is_some(), "{name}");
        }
    }
}
