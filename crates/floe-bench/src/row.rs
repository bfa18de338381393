//! A row: the same work done by several variants, and how their costs compare.

use serde_json::Value;

use crate::rounds::Measurement;
use crate::sample::{Latency, Metric, Sample, Unit};
use crate::statistics::{Ratio, Summary, Welch, median, ratio_of_means, verdict, welch};

/// The same work, done by several variants.
#[derive(Clone, Debug)]
pub struct Row {
    /// The work in a few words.
    pub name: String,
    /// The unit in which samples count the work.
    pub unit: Unit,
    /// Other facts for the report, such as the file system.
    pub facts: Value,
    /// Name and measurement of each variant. The first one is the reference of
    /// [`compare`](Row::compare).
    pub measurements: Vec<(String, Measurement)>,
}

/// The costs of one variant of a row, beside those of the reference.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// Seconds per unit of work.
    pub seconds: Summary,
    /// CPU seconds per unit of work, if all runs have them.
    pub cpu_seconds: Option<Summary>,
    /// Peak memory of the largest run, in bytes.
    pub peak_memory: Option<u64>,
    /// Mean over the mean of the reference.
    pub ratio: Option<Ratio>,
    /// Median of the ratios of single rounds.
    pub median_ratio: Option<f64>,
    /// Test of the difference from the reference.
    pub welch: Option<Welch>,
    /// The result of the test in a few words.
    pub verdict: Option<&'static str>,
}

impl Row {
    /// The samples of a variant; `None` if it has none.
    pub fn samples(&self, variant: &str) -> Option<&[Sample]> {
        let (_, measurement) = self.measurements.iter().find(|(name, _)| name == variant)?;
        Some(measurement.samples()).filter(|samples| !samples.is_empty())
    }

    /// The cost of each run of a variant; `None` if a run lacks it or there are no runs.
    pub fn costs(&self, variant: &str, metric: Metric) -> Option<Vec<f64>> {
        let samples = self.samples(variant)?.iter();
        samples.map(|sample| metric.of(sample)).collect()
    }

    /// The median cost of a variant.
    pub fn median(&self, variant: &str, metric: Metric) -> Option<f64> {
        median(&self.costs(variant, metric)?)
    }

    /// The medians of a variant's latencies; `None` if a run lacks them.
    pub fn latency(&self, variant: &str) -> Option<Latency> {
        let samples = self.samples(variant)?.iter();
        let all: Option<Vec<Latency>> = samples.map(|sample| sample.latency).collect();
        let all = all?;
        let of = |value: fn(&Latency) -> f64| median(&all.iter().map(value).collect::<Vec<_>>());
        Some(Latency {
            p50: of(|latency| latency.p50)?,
            p99: of(|latency| latency.p99)?,
        })
    }

    /// The costs of `variant` over those of `reference`, round by round.
    ///
    /// A machine that is slow for a while is slow for both, so these vary less than the ratio of
    /// two medians. `None` if a round of either is missing, or too short for the clock.
    pub fn round_ratios(&self, variant: &str, reference: &str, metric: Metric) -> Option<Vec<f64>> {
        let costs = self.costs(variant, metric)?;
        let references = self.costs(reference, metric)?;
        if costs.len() != references.len() || references.iter().any(|cost| *cost <= 0.0) {
            return None;
        }
        Some(ratios(&costs, &references))
    }

    /// The costs of the variant at `index`, compared with the first variant; `None` without
    /// samples. The first variant is compared with nothing.
    pub fn compare(&self, index: usize) -> Option<Comparison> {
        let (name, measurement) = self.measurements.get(index)?;
        let costs = self.costs(name, Metric::Time)?;
        let seconds = Summary::of(&costs)?;
        let samples = measurement.samples();
        let reference = match self.measurements.first() {
            Some((first, _)) if index != 0 => self.costs(first, Metric::Time),
            _ => None,
        };
        let base = reference.as_deref().and_then(Summary::of);
        Some(Comparison {
            seconds,
            cpu_seconds: Summary::of(&self.costs(name, Metric::Cpu).unwrap_or_default()),
            peak_memory: samples.iter().filter_map(|sample| sample.peak_memory).max(),
            ratio: base.and_then(|base| ratio_of_means(&seconds, &base)),
            median_ratio: reference.and_then(|reference| median(&ratios(&costs, &reference))),
            welch: base.and_then(|base| welch(&seconds, &base)),
            verdict: base.map(|base| verdict(&seconds, &base)),
        })
    }
}

/// Ratios of the rounds that both have; an interrupted benchmark may lack the last one of either.
fn ratios(costs: &[f64], references: &[f64]) -> Vec<f64> {
    costs.iter().zip(references).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn measurement(seconds: &[f64]) -> Measurement {
        let sample = |seconds: &f64| Sample {
            cpu_seconds: Some(seconds * 0.75),
            system_seconds: Some(seconds * 0.25),
            peak_memory: Some(30 << 20),
            ..Sample::timed(*seconds, 1.0)
        };
        Measurement::Ran(seconds.iter().map(sample).collect())
    }

    /// A row with a reference, a faster variant, and one that failed.
    pub(crate) fn row() -> Row {
        Row {
            name: "local → tmpfs".into(),
            unit: Unit::Run,
            facts: json!({ "fileSystem": "tmpfs" }),
            measurements: vec![
                ("nix".to_owned(), measurement(&[1.0, 1.1, 0.9])),
                ("floe".to_owned(), measurement(&[0.5, 0.55, 0.45])),
                (
                    "a < b".to_owned(),
                    Measurement::Failed("exit status: 1\nno such | path".into()),
                ),
            ],
        }
    }

    #[test]
    fn compare_relates_every_variant_to_the_first() {
        let row = row();
        assert!(row.compare(0).unwrap().ratio.is_none());
        let floe = row.compare(1).unwrap();
        assert!((floe.ratio.unwrap().value - 0.5).abs() < 1e-9);
        assert!((floe.median_ratio.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(floe.verdict, Some("faster"));
        assert!(row.compare(2).is_none() && row.compare(3).is_none());
    }

    #[test]
    fn compare_with_failed_reference_has_no_ratio() {
        let mut row = row();
        row.measurements[0].1 = Measurement::Failed("failed".into());
        let floe = row.compare(1).unwrap();
        assert!(floe.ratio.is_none() && floe.verdict.is_none());
    }

    #[test]
    fn round_ratios_ignore_a_drift_of_the_machine() {
        let mut row = row();
        // In each round floe takes 0.9 of the time; the medians alone would say 0.5.
        row.measurements[1].1 = measurement(&[0.9, 4.5, 0.9]);
        row.measurements[0].1 = measurement(&[1.0, 5.0, 1.8]);
        let ratios = row.round_ratios("floe", "nix", Metric::Time).unwrap();
        let found = median(&ratios).unwrap();
        assert!((found - 0.9).abs() < 1e-9, "{found}");
        row.measurements[0].1 = measurement(&[1.0]);
        let found = row.round_ratios("floe", "nix", Metric::Time);
        assert_eq!(found, None, "rounds are missing");
    }

    #[test]
    fn median_cost_ignores_an_outlier() {
        let mut row = row();
        row.measurements[0].1 = measurement(&[2.0, 180.0, 2.0]);
        assert_eq!(row.median("nix", Metric::Time), Some(2.0));
        assert_eq!(row.median("nix", Metric::Cpu), Some(1.5));
        assert_eq!(row.median("a < b", Metric::Time), None);
    }
}
