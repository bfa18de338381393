//! The report in Markdown.

use super::Report;
use crate::machine;
use crate::rounds::Measurement;
use crate::row::{Comparison, Row};
use crate::sample::{Latency, significant};
use crate::table::Table;

impl Report {
    /// The whole document: title, notes, machine, and the table.
    pub fn markdown(&self) -> String {
        self.head() + "\n" + &self.table()
    }

    /// The part before the table.
    pub fn head(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        if self.interrupted {
            text += "**Interrupted**: only the runs before the interruption are included.\n\n";
        }
        for note in &self.notes {
            text += &format!("- {note}\n");
        }
        text + &format!("- {}\n", machine::describe(&self.machine))
    }

    /// The table alone, with one line per variant.
    pub fn table(&self) -> String {
        let has_latency = self.rows.iter().any(|row| {
            let mut names = row.measurements.iter();
            names.any(|(name, _)| row.latency(name).is_some())
        });
        let headings = [
            "work",
            "variant",
            "mean ± sd",
            "median (min–max)",
            "ratio [95 %]",
            "p",
            "verdict",
            "CPU",
            "peak, MB",
            "p50 / p99, ms",
        ];
        let columns = headings.len() - usize::from(!has_latency);
        let mut table = Table::new(&headings[..columns]);
        for row in &self.rows {
            for (index, (name, measurement)) in row.measurements.iter().enumerate() {
                let mut cells = vec![row.name.clone(), name.clone()];
                match (row.compare(index), measurement) {
                    (Some(found), _) => cells.extend(figures(row, &found, index == 0)),
                    (None, Measurement::Failed(reason)) => cells.push(format!("failed: {reason}")),
                    (None, Measurement::Ran(_)) => cells.push("not run".into()),
                }
                cells.extend(row.latency(name).map(|Latency { p50, p99 }| {
                    let [p50, p99] = [p50, p99].map(|seconds| significant(seconds * 1e3));
                    format!("{p50} / {p99}")
                }));
                table.row(&cells);
            }
        }
        table.into_markdown()
    }
}

fn figures(row: &Row, found: &Comparison, is_reference: bool) -> [String; 7] {
    let seconds = &found.seconds;
    let (format, unit) = row.unit.formatter(seconds.mean);
    let [mean, sd, median] = [seconds.mean, seconds.sd, seconds.median].map(&format);
    let [min, max] = [seconds.min, seconds.max].map(&format);
    let ratio = match found.ratio {
        Some(ratio) => format!("{:.2} [{:.2}–{:.2}]", ratio.value, ratio.low, ratio.high),
        None if is_reference => "1".to_owned(),
        None => String::new(),
    };
    let p = found.welch.map(|test| probability(test.p));
    let cpu = found.cpu_seconds.map(|cpu| row.unit.format(cpu.mean));
    let memory = found
        .peak_memory
        .map(|bytes| significant(bytes as f64 / 1e6));
    [
        format!("{mean} ± {sd} {unit}"),
        format!("{median} ({min}–{max})"),
        ratio,
        p.unwrap_or_default(),
        found.verdict.unwrap_or_default().into(),
        cpu.unwrap_or_default(),
        memory.unwrap_or_default(),
    ]
}

fn probability(p: f64) -> String {
    match p {
        0.0 => "0".into(),
        p if p < 1e-3 => format!("{p:.0e}"),
        p => format!("{p:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn table_has_a_full_line_per_variant() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 2 + 3);
        for line in &lines {
            assert_eq!(line.replace("\\|", "").matches('|').count(), 10, "{line}");
        }
        let reference = "1.000 ± 0.100 s | 1.000 (0.900–1.100) | 1 |";
        assert!(lines[2].contains(reference), "{table}");
        assert!(lines[3].contains("| 0.50 [0."), "{table}");
        assert!(lines[3].contains("faster"), "{table}");
        let failed = "failed: exit status: 1 no such \\| path";
        assert!(lines[4].contains(failed), "{table}");
    }

    #[test]
    fn table_has_latency_only_if_a_variant_has_it() {
        let mut report = report();
        assert!(!report.table().contains("p99"));
        let Measurement::Ran(samples) = &mut report.rows[0].measurements[1].1 else {
            panic!("{report:?}");
        };
        let (p50, p99) = (0.0005, 0.002);
        samples
            .iter_mut()
            .for_each(|sample| sample.latency = Some(Latency { p50, p99 }));
        let table = report.table();
        assert!(table.contains("| 0.500 / 2.00 |"), "{table}");
    }

    #[test]
    fn interrupted_report_says_so() {
        let mut report = report();
        assert!(!report.markdown().contains("Interrupted"));
        report.interrupted = true;
        assert!(report.markdown().contains("Interrupted"));
        assert!(report.markdown().contains("no variant checks"));
    }

    #[test]
    fn probability_keeps_the_magnitude_of_small_values() {
        assert_eq!(probability(0.049_9), "0.050");
        assert_eq!(probability(4.2e-9), "4e-9");
        assert_eq!(probability(0.0), "0");
    }
}
