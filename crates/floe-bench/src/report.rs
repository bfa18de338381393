//! The report of a benchmark: raw data as JSON, a document in Markdown, and a chart.

mod json;
mod markdown;

use serde_json::Value;

use crate::chart::{Bar, Chart, Colour, Group};
use crate::row::Row;

/// The results of a benchmark.
#[derive(Clone, Debug)]
pub struct Report {
    /// The title, in a line.
    pub title: String,
    /// The machine, from [`machine`](crate::machine::machine).
    pub machine: Value,
    /// Sentences that a reader needs to judge the figures.
    pub notes: Vec<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether the benchmark was stopped before its end.
    pub interrupted: bool,
}

impl Report {
    /// Whether there is a row, and every variant of every row has samples.
    pub fn is_complete(&self) -> bool {
        let is_measured = |row: &Row| {
            let mut measurements = row.measurements.iter();
            measurements.all(|(_, measurement)| !measurement.samples().is_empty())
        };
        !self.rows.is_empty() && self.rows.iter().all(is_measured)
    }

    /// A chart of the mean times with their standard deviations. Each row has its own scale.
    pub fn svg(&self) -> String {
        Chart {
            title: format!("{}: mean time ± standard deviation", self.title),
            note: String::new(),
            label_width: 200.0,
            cut_at: None,
            groups: self.rows.iter().map(group).collect(),
        }
        .svg()
    }
}

fn group(row: &Row) -> Group {
    let bar = |(index, (name, _)): (usize, &(String, _))| {
        let found = row.compare(index);
        let time = found.map(|found| row.unit.format(found.seconds.mean));
        let ratio = found.and_then(|found| found.ratio);
        let (text, colour) = match (time, ratio) {
            (None, _) => ("no figures".into(), Colour::Red),
            (Some(time), Some(ratio)) => (format!("{time} ({:.2})", ratio.value), Colour::Blue),
            (Some(time), None) if index == 0 => (time, Colour::Grey),
            (Some(time), None) => (time, Colour::Blue),
        };
        Bar {
            label: name.clone(),
            value: found.map(|found| (found.seconds.mean, found.seconds.sd)),
            text,
            colour,
        }
    };
    Group {
        heading: row.name.clone(),
        bars: row.measurements.iter().enumerate().map(bar).collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::tests::row;

    pub(crate) fn report() -> Report {
        Report {
            title: "floe bench copy".into(),
            machine: json!({ "cpu": "A CPU", "cores": 2 }),
            notes: vec!["Signatures: no variant checks them.".into()],
            rows: vec![row()],
            interrupted: false,
        }
    }

    #[test]
    fn report_with_failed_variant_or_no_rows_is_incomplete() {
        let mut report = report();
        assert!(!report.is_complete());
        report.rows[0].measurements.pop();
        assert!(report.is_complete());
        report.rows.clear();
        assert!(!report.is_complete());
    }

    #[test]
    fn svg_has_a_bar_with_spread_per_variant() {
        let svg = report().svg();
        assert_eq!(svg, report().svg());
        assert_eq!(svg.matches("<rect").count(), 1 + 2);
        assert_eq!(svg.matches("<path").count(), 2);
        assert_eq!(svg.matches("no figures").count(), 1);
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("0.500 s (0.50)"), "{svg}");
    }
}
