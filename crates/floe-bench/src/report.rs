//! What a benchmark found: raw, as a table, and as a picture.

mod json;
mod markdown;
pub mod svg;

use serde_json::Value;

use crate::rounds::Measurement;
use crate::statistics::{Ratio, Summary, Verdict, Welch, paired_ratio, ratio, welch};

/// Everything that a benchmark found.
#[derive(Clone, Debug)]
pub struct Report {
    /// What it is about, in a line.
    pub title: String,
    /// The machine, as [`crate::machine::machine`] describes it.
    pub machine: Value,
    /// Sentences that somebody who reads the figures must know.
    pub notes: Vec<String>,
    /// The work, row by row.
    pub rows: Vec<Row>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// The same work, done by everybody.
#[derive(Clone, Debug)]
pub struct Row {
    /// The work in a few words.
    pub name: String,
    /// What else is to be known of it, such as its file system.
    pub facts: Value,
    /// Who did it, and how it went. The first is the base of comparison.
    pub measurements: Vec<(String, Measurement)>,
}

/// What is said of one cell of a row.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Its wall seconds.
    pub seconds: Summary,
    /// Its CPU seconds.
    pub cpu_seconds: Summary,
    /// The most memory of any of its runs, in bytes.
    pub peak_memory: u64,
    /// Its mean over that of the base.
    pub ratio: Option<Ratio>,
    /// The median of the ratios of single rounds.
    pub paired: Option<f64>,
    /// Whether its mean differs from that of the base.
    pub welch: Option<Welch>,
    /// What may be said of it.
    pub verdict: Option<Verdict>,
}

impl Row {
    /// The figures of the cell at `index`; `None` if it has none. The base is compared with
    /// nothing, and nothing with a base without figures.
    pub fn compare(&self, index: usize) -> Option<Comparison> {
        let samples = self.measurements.get(index)?.1.samples();
        let of = |index: usize| -> Vec<f64> {
            let samples = self.measurements[index].1.samples();
            samples.iter().map(|sample| sample.seconds).collect()
        };
        let seconds = Summary::of(&of(index))?;
        let cpu: Vec<f64> = samples.iter().map(|sample| sample.cpu_seconds()).collect();
        let base = (index != 0).then(|| Summary::of(&of(0))).flatten();
        Some(Comparison {
            seconds,
            cpu_seconds: Summary::of(&cpu)?,
            peak_memory: samples.iter().map(|sample| sample.peak_memory).max()?,
            ratio: base.and_then(|base| ratio(&seconds, &base)),
            paired: base.and_then(|_| paired_ratio(&of(index), &of(0))),
            welch: base.and_then(|base| welch(&seconds, &base)),
            verdict: base.map(|base| Verdict::of(&seconds, &base)),
        })
    }
}

impl Report {
    /// Whether every variant of every row has figures, and there is at least one row.
    pub fn is_complete(&self) -> bool {
        let has_figures = |(_, cell): &(String, Measurement)| !cell.samples().is_empty();
        !self.rows.is_empty()
            && self
                .rows
                .iter()
                .all(|row| row.measurements.iter().all(has_figures))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::Sample;

    pub(crate) fn cell(seconds: &[f64]) -> Measurement {
        let sample = |seconds: &f64| Sample {
            seconds: *seconds,
            user_seconds: seconds / 2.0,
            system_seconds: seconds / 4.0,
            peak_memory: 30 << 20,
        };
        Measurement::Ran(seconds.iter().map(sample).collect())
    }

    pub(crate) fn report() -> Report {
        let measurements = vec![
            ("nix".to_owned(), cell(&[1.0, 1.1, 0.9])),
            ("floe".to_owned(), cell(&[0.5, 0.55, 0.45])),
            (
                "a < b".to_owned(),
                Measurement::Failed("exit status: 1\nno such | path".into()),
            ),
        ];
        Report {
            title: "floe bench copy".into(),
            machine: json!({ "cpu": "A CPU", "cores": 2 }),
            notes: vec!["Signatures: nobody checks them.".into()],
            rows: vec![Row {
                name: "local → tmpfs".into(),
                facts: json!({ "fileSystem": "tmpfs" }),
                measurements,
            }],
            interrupted: false,
        }
    }

    #[test]
    fn everybody_is_compared_with_the_first() {
        let report = report();
        let row = &report.rows[0];
        assert!(row.compare(0).unwrap().ratio.is_none());
        let floe = row.compare(1).unwrap();
        assert!((floe.ratio.unwrap().value - 0.5).abs() < 1e-9);
        assert!((floe.paired.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(floe.verdict, Some(Verdict::Faster));
        assert!(row.compare(2).is_none() && row.compare(3).is_none());
    }

    #[test]
    fn a_void_base_leaves_nothing_to_compare_with() {
        let mut report = report();
        report.rows[0].measurements[0].1 = Measurement::Failed("failed".into());
        let floe = report.rows[0].compare(1).unwrap();
        assert!(floe.ratio.is_none() && floe.verdict.is_none());
    }

    #[test]
    fn a_report_with_a_void_cell_or_without_rows_is_not_complete() {
        let mut report = report();
        assert!(!report.is_complete());
        report.rows[0].measurements.pop();
        assert!(report.is_complete());
        report.rows.clear();
        assert!(!report.is_complete());
    }
}
