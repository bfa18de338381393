//! The report as a table in Markdown.

use std::fmt::Write as _;

use super::{Comparison, Report, Row};
use crate::machine;
use crate::rounds::Measurement;

impl Report {
    /// A document: a title, what is to be known, and a table.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        if self.interrupted {
            text += "**Interrupted**: these are the runs before that.\n\n";
        }
        for note in &self.notes {
            text += &format!("- {note}\n");
        }
        text += &format!("- {}\n\n", machine::describe(&self.machine));
        text + &self.table()
    }

    /// The table alone.
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| work | variant | mean ± sd, s | median (min–max), s | ratio [95 %] | p | verdict | \
             CPU, s | peak, MB |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            for index in 0..row.measurements.len() {
                line(&mut text, row, index);
            }
        }
        text
    }
}

fn line(text: &mut String, row: &Row, index: usize) {
    let (name, cell) = &row.measurements[index];
    let (work, name) = (plain(&row.name), plain(name));
    let rest = match (row.compare(index), cell) {
        (Some(compared), _) => figures(&compared, index == 0),
        (None, Measurement::Failed(why)) => format!("failed: {} | | | | | | |", plain(why)),
        (None, Measurement::Ran(_)) => "not run | | | | | | |".to_owned(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {work} | {name} | {rest}");
}

fn figures(compared: &Comparison, is_base: bool) -> String {
    let seconds = &compared.seconds;
    let ratio = match compared.ratio {
        Some(ratio) => format!("{:.2} [{:.2}–{:.2}]", ratio.value, ratio.low, ratio.high),
        None if is_base => "1".to_owned(),
        None => String::new(),
    };
    format!(
        "{:.3} ± {:.3} | {:.3} ({:.3}–{:.3}) | {ratio} | {} | {} | {:.2} | {:.0} |",
        seconds.mean,
        seconds.sd,
        seconds.median,
        seconds.min,
        seconds.max,
        compared
            .welch
            .map_or_else(String::new, |test| probability(test.p)),
        compared.verdict.map_or("", |verdict| verdict.describe()),
        compared.cpu_seconds.mean,
        compared.peak_memory as f64 / 1e6,
    )
}

fn probability(p: f64) -> String {
    match p {
        0.0 => "0".into(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

/// Text for a cell of a table: one line, without what would end the cell.
fn plain(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    line.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_variant_has_a_line_of_as_many_cells_as_the_head() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 2 + 3);
        for line in &lines {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 10, "{line}");
        }
        assert!(
            lines[2].contains("1.000 ± 0.100 | 1.000 (0.900–1.100) | 1 |"),
            "{table}"
        );
        assert!(lines[3].contains("| 0.50 [0."), "{table}");
        assert!(lines[3].contains("faster"), "{table}");
        assert!(
            lines[4].contains("failed: exit status: 1 no such \\| path"),
            "{table}"
        );
    }

    #[test]
    fn an_interrupted_report_says_so() {
        let mut report = report();
        assert!(!report.markdown().contains("Interrupted"));
        report.interrupted = true;
        assert!(report.markdown().contains("Interrupted"));
        assert!(report.markdown().contains("nobody checks"));
    }

    #[test]
    fn small_probabilities_keep_their_size() {
        assert_eq!(probability(0.049_9), "0.050");
        assert_eq!(probability(4.2e-9), "4e-9");
        assert_eq!(probability(0.0), "0");
    }
}
