//! Compares two builds of floe that were measured in turns in one run.

use floe_bench::statistics::{Ratio, paired_ratio};
use floe_bench::{Metric, Report, Row, Table};

use crate::aims::FLOE;
use crate::outcome::Outcome;

/// The name of the older build as a variant.
pub(crate) const BEFORE: &str = "floe before";

/// A row became slower if the whole interval of its ratio lies above this value.
const LIMIT: f64 = 1.03;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The whole interval lies above the limit.
    Slower,
    /// The whole interval lies below the limit.
    NotSlower,
    /// The limit lies within the interval.
    Uncertain,
    /// A build has no figures.
    NotMeasured,
}

impl Verdict {
    fn of(ratio: Option<Ratio>) -> Verdict {
        match ratio {
            None => Verdict::NotMeasured,
            Some(ratio) if ratio.low > LIMIT => Verdict::Slower,
            Some(ratio) if ratio.high > LIMIT => Verdict::Uncertain,
            Some(_) => Verdict::NotSlower,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Verdict::Slower => "slower",
            Verdict::NotSlower => "not slower",
            Verdict::Uncertain => "uncertain",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// The document, and whether every row was measured and none became slower. A report without rows
/// fails, because it compared nothing.
pub(crate) fn compare(report: &Report) -> (String, Outcome) {
    let verdicts: Vec<Verdict> = report
        .rows
        .iter()
        .map(|row| Verdict::of(ratio(row, Metric::Time)))
        .collect();
    let count = |verdict| verdicts.iter().filter(|it| **it == verdict).count();
    let (slower, missing) = (count(Verdict::Slower), count(Verdict::NotMeasured));
    let text = format!(
        "{}\nRatios are now / before: the geometric mean of the ratios of single rounds, with its \
         95 % interval.\nA row is slower if the whole interval of the time lies above {LIMIT}.\n\n\
         {}\n{} rows: {slower} slower, {} not slower, {} uncertain, {missing} not measured.\n",
        report.head(),
        table(&report.rows, &verdicts),
        verdicts.len(),
        count(Verdict::NotSlower),
        count(Verdict::Uncertain),
    );
    let passed = !verdicts.is_empty() && slower == 0 && missing == 0;
    let outcome = if passed {
        Outcome::Passed
    } else {
        Outcome::Failed
    };
    (text, outcome)
}

fn ratio(row: &Row, metric: Metric) -> Option<Ratio> {
    paired_ratio(&row.round_ratios(FLOE, BEFORE, metric)?)
}

fn table(rows: &[Row], verdicts: &[Verdict]) -> String {
    let mut table = Table::new(&[
        "work",
        "before",
        "now",
        "time [95 %]",
        "CPU [95 %]",
        "verdict",
    ]);
    for (row, verdict) in rows.iter().zip(verdicts) {
        let cost = |variant: &str| {
            let median = row.median(variant, Metric::Time);
            median.map_or("–".to_owned(), |cost| row.unit.format(cost))
        };
        let reasons = row.measurements.iter().filter_map(|(name, measurement)| {
            let floe_bench::Measurement::Failed(reason) = measurement else {
                return None;
            };
            Some(format!(" ({name}: {reason})"))
        });
        table.row(&[
            row.name.clone(),
            cost(BEFORE),
            cost(FLOE),
            interval(ratio(row, Metric::Time)),
            interval(ratio(row, Metric::Cpu)),
            verdict.describe().to_owned() + &reasons.collect::<String>(),
        ]);
    }
    table.into_markdown()
}

fn interval(ratio: Option<Ratio>) -> String {
    ratio.map_or("–".to_owned(), |ratio| {
        format!("{:.3} [{:.3}–{:.3}]", ratio.value, ratio.low, ratio.high)
    })
}

#[cfg(test)]
mod tests {
    use floe_bench::{Measurement, Sample, Unit};
    use serde_json::Value;

    use super::*;

    fn report(now: &[f64]) -> Report {
        let ran = |seconds: &[f64]| {
            let samples = seconds.iter().map(|seconds| Sample::timed(*seconds, 1.0));
            Measurement::Ran(samples.collect())
        };
        Report {
            title: "two builds".into(),
            machine: Value::Null,
            notes: Vec::new(),
            rows: vec![Row {
                name: "work".into(),
                unit: Unit::Run,
                facts: Value::Null,
                measurements: vec![
                    (BEFORE.into(), ran(&[1.0, 1.1, 1.2, 1.0])),
                    (FLOE.into(), ran(now)),
                ],
            }],
            interrupted: false,
        }
    }

    #[test]
    fn row_fails_only_if_its_interval_lies_above_the_limit() {
        for (now, verdict, outcome) in [
            (
                &[1.05, 1.156, 1.26, 1.05][..],
                "| slower |",
                Outcome::Failed,
            ),
            (&[1.0, 1.1, 1.2, 1.0], "| not slower |", Outcome::Passed),
            (&[0.9, 1.2, 1.1, 1.2], "| uncertain |", Outcome::Passed),
            (&[1.0, 1.1], "| not measured |", Outcome::Failed),
        ] {
            let (text, found) = compare(&report(now));
            assert!(text.contains(verdict), "{text}");
            assert_eq!(found, outcome, "{text}");
        }
    }

    #[test]
    fn failed_variant_fails_with_its_reason() {
        let mut report = report(&[1.0]);
        report.rows[0].measurements[1].1 = Measurement::Failed("no luck".into());
        let (text, outcome) = compare(&report);
        assert!(text.contains("not measured (floe: no luck)"), "{text}");
        assert_eq!(outcome, Outcome::Failed);
    }

    #[test]
    fn report_without_rows_fails() {
        let mut report = report(&[1.0]);
        report.rows.clear();
        assert_eq!(compare(&report).1, Outcome::Failed);
    }
}
