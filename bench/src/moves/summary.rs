//! What the figures mean beside the aims.

use std::fmt::Write as _;
use std::thread;

use floe_bench::statistics::{Summary, paired_ratio};
use floe_bench::{Report, Row};

use super::rows::{FLOE, Measure, Plan};

/// A row beside its aim.
pub(super) struct Judged {
    name: &'static str,
    aim: f64,
    rival: &'static str,
    measure: Measure,
    /// Medians, in seconds.
    floe: Option<f64>,
    rivals: Option<f64>,
    /// The median of the ratios of the rounds.
    ratio: Option<f64>,
    /// The least that the work can take on the cores of this machine, or of CPU time where that
    /// is compared, in seconds.
    baseline: Option<f64>,
    /// Why there are no figures.
    why: Option<String>,
}

/// Whoever is this near to what is possible has met the aim.
const NEAR: f64 = 1.15;

impl Judged {
    pub(super) fn of(plan: &Plan, row: &Row) -> Judged {
        let aim = plan.aim;
        let of = |name: &str, measure: Measure| -> Option<Vec<f64>> {
            let (_, cell) = row.measurements.iter().find(|(known, _)| known == name)?;
            let samples = cell.samples().iter();
            let figures: Vec<f64> = match measure {
                Measure::Wall => samples.map(|sample| sample.seconds).collect(),
                Measure::Cpu => samples.map(|sample| sample.cpu_seconds()).collect(),
            };
            (!figures.is_empty()).then_some(figures)
        };
        let median = |figures: Option<Vec<f64>>| Some(Summary::of(&figures?)?.median);
        let floe = of(FLOE, aim.measure);
        let rival = of(aim.rival, aim.measure);
        let parts = row.facts["baseline"].as_array().into_iter().flatten();
        let parts: Option<Vec<f64>> = parts
            .map(|name| median(of(name.as_str()?, Measure::Cpu)))
            .collect();
        // CPU seconds are not shared by cores.
        let shares = match aim.measure {
            Measure::Wall => thread::available_parallelism().map_or(1, usize::from) as f64,
            Measure::Cpu => 1.0,
        };
        let why = row.measurements.iter().find_map(|(name, cell)| match cell {
            floe_bench::Measurement::Failed(why) => Some(format!("{name}: {why}")),
            floe_bench::Measurement::Ran(_) => None,
        });
        Judged {
            name: plan.name,
            aim: aim.ratio,
            rival: aim.rival,
            measure: aim.measure,
            ratio: floe
                .as_ref()
                .zip(rival.as_ref())
                .and_then(|(a, b)| paired_ratio(a, b)),
            floe: median(floe),
            rivals: median(rival),
            baseline: parts
                .filter(|parts| !parts.is_empty())
                .map(|parts| parts.iter().sum::<f64>() / shares),
            why,
        }
    }

    /// Whether floe and its rival both ran.
    pub(super) fn was_measured(&self) -> bool {
        self.ratio.is_some()
    }

    fn over_baseline(&self) -> Option<f64> {
        Some(self.floe? / self.baseline?)
    }

    fn verdict(&self) -> &'static str {
        match (self.ratio, self.over_baseline()) {
            (None, _) => "not measured",
            (Some(ratio), _) if ratio <= self.aim => "met",
            (_, Some(over)) if over <= NEAR => "met by the baseline",
            _ => "missed",
        }
    }

    /// The row in a line.
    pub(super) fn describe(&self) -> String {
        let why = self.why.as_deref().unwrap_or_default();
        format!(
            "floe {} s, {} {} s, ratio {} (aim {:.2}), over the baseline {}: {} {why}",
            figure(self.floe),
            self.rival,
            figure(self.rivals),
            figure(self.ratio),
            self.aim,
            figure(self.over_baseline()),
            self.verdict()
        )
    }
}

/// The table of aims.
pub(super) fn table(rows: &[Judged]) -> String {
    let mut text = String::from(
        "| work | floe, s | beside | s | ratio | aim | floe over the baseline | |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let cpu = match row.measure {
            Measure::Wall => "",
            Measure::Cpu => " (CPU)",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {}{cpu} | {} | {} | {} | ≤ {:.2} | {} | {} |",
            row.name,
            figure(row.floe),
            row.rival,
            figure(row.rivals),
            figure(row.ratio),
            row.aim,
            figure(row.over_baseline()),
            row.verdict()
        );
    }
    text
}

/// The whole document: aims first, then everybody's figures.
pub(super) fn document(report: &Report, rows: &[Judged]) -> String {
    let whole = report.markdown();
    let (head, figures) = whole.split_once("\n| work |").unwrap_or((&whole, ""));
    format!(
        "{head}\nMedians; the ratio is the median of those of single rounds. The baseline is what \
         decoding or reading, hashing and\nwriting take of CPU time when each is done by itself \
         and one message is hashed at a time, over the number of\ncores where time is compared; \
         an aim is met at its ratio, or at {NEAR} times the baseline.\n\n\
         {}\n| work |{figures}",
        table(rows)
    )
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.2}"))
}

#[cfg(test)]
mod tests {
    use floe_bench::{Measurement, Sample};
    use serde_json::json;

    use super::super::rows;
    use super::*;

    fn cell(seconds: &[f64]) -> Measurement {
        let sample = |seconds: &f64| Sample {
            seconds: *seconds,
            user_seconds: *seconds,
            system_seconds: 0.0,
            peak_memory: 1,
        };
        Measurement::Ran(seconds.iter().map(sample).collect())
    }

    fn judged(floe: Measurement, nix: Measurement, hash: &[f64]) -> Judged {
        let plan = &rows::all()[0];
        let measurements = vec![
            ("nix".to_owned(), nix),
            ("floe".to_owned(), floe),
            ("hash".to_owned(), cell(hash)),
        ];
        let row = Row {
            name: plan.name.into(),
            facts: json!({ "baseline": ["hash"] }),
            measurements,
        };
        Judged::of(plan, &row)
    }

    #[test]
    fn an_aim_is_met_by_its_ratio_or_by_the_floor() {
        let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
        let nix = || cell(&[1.0, 2.0, 4.0]);
        let met = judged(cell(&[0.5, 1.0, 2.0]), nix(), &[0.1]);
        assert_eq!((met.verdict(), met.ratio), ("met", Some(0.5)));
        let near = judged(cell(&[0.9, 1.8, 3.6]), nix(), &[1.7 * cores]);
        assert_eq!(near.verdict(), "met by the baseline");
        let missed = judged(cell(&[0.9, 1.8, 3.6]), nix(), &[1.0 * cores]);
        assert_eq!(missed.verdict(), "missed");
        assert!(table(&[missed]).contains("| missed |"));
    }

    #[test]
    fn cores_do_not_share_the_floor_of_cpu_time() {
        let plans = rows::all();
        let plan = plans
            .iter()
            .find(|plan| plan.aim.measure == Measure::Cpu)
            .unwrap();
        let measurements = [("nix", [1.0]), ("floe", [1.1]), ("hash", [1.0])];
        let row = Row {
            name: plan.name.into(),
            facts: json!({ "baseline": ["hash"] }),
            measurements: measurements
                .map(|(name, seconds)| (name.to_owned(), cell(&seconds)))
                .into(),
        };
        assert_eq!(Judged::of(plan, &row).verdict(), "met by the baseline");
    }

    #[test]
    fn a_row_whose_rival_failed_is_not_measured_and_says_why() {
        let row = judged(
            cell(&[1.0]),
            Measurement::Failed("no such luck".into()),
            &[1.0],
        );
        assert!(!row.was_measured());
        assert!(
            row.describe().contains("not measured nix: no such luck"),
            "{}",
            row.describe()
        );
    }
}
