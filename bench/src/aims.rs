//! Aims of floe beside a rival, and whether a row meets them.

use std::thread;

use floe_bench::chart::{Bar, Chart, Colour, Group};
use floe_bench::statistics::median;
use floe_bench::{Measurement, Metric, Row, Table, significant};

/// The name of floe as a variant.
pub(crate) const FLOE: &str = "floe";

/// The rival of a row that only floe can do.
pub(crate) const NO_RIVAL: &str = "–";

/// Upper limits of floe's costs: over those of a rival, and on any machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Aim {
    pub(crate) rival: &'static str,
    pub(crate) time: Option<f64>,
    pub(crate) cpu: Option<f64>,
    pub(crate) seconds: Option<f64>,
    /// The peak memory, in units of 1,000,000 bytes.
    pub(crate) megabytes: Option<f64>,
}

impl Aim {
    /// No aim; the rival is shown for comparison.
    pub(crate) const fn none(rival: &'static str) -> Aim {
        Aim {
            rival,
            time: None,
            cpu: None,
            seconds: None,
            megabytes: None,
        }
    }

    /// At most this part of the rival's time.
    pub(crate) const fn time(rival: &'static str, most: f64) -> Aim {
        Aim {
            time: Some(most),
            ..Aim::none(rival)
        }
    }

    /// At least this multiple of the rival's speed.
    pub(crate) const fn speed(rival: &'static str, least: f64) -> Aim {
        Aim::time(rival, 1.0 / least)
    }

    /// At most this part of the rival's CPU time.
    pub(crate) const fn cpu(self, most: f64) -> Aim {
        Aim {
            cpu: Some(most),
            ..self
        }
    }

    /// At most this time for one unit of work.
    pub(crate) const fn seconds(self, most: f64) -> Aim {
        Aim {
            seconds: Some(most),
            ..self
        }
    }

    /// At most this memory.
    pub(crate) const fn megabytes(self, most: f64) -> Aim {
        Aim {
            megabytes: Some(most),
            ..self
        }
    }

    fn is_none(self) -> bool {
        self.time.is_none() && self.cpu.is_none() && !self.is_absolute()
    }

    /// Whether the aim limits more than ratios.
    fn is_absolute(self) -> bool {
        self.seconds.is_some() || self.megabytes.is_some()
    }

    fn describe(self) -> String {
        let limit = |most: f64| {
            let text = significant(most);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        };
        let time = self.time.map(|most| format!("time ≤ {}", limit(most)));
        let cpu = self.cpu.map(|most| format!("CPU ≤ {}", limit(most)));
        let seconds = self.seconds.map(|most| format!("time ≤ {} s", limit(most)));
        let peak = self.megabytes;
        let peak = peak.map(|most| format!("peak ≤ {} MB", limit(most)));
        let parts = [time, cpu, seconds, peak].into_iter().flatten();
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            "none".into()
        } else {
            parts.join(", ")
        }
    }
}

/// Within this multiple of the baseline an aim counts as met: little more is possible.
const BASELINE_MARGIN: f64 = 1.15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    /// The aim is out of reach on this machine, and floe is near the baseline.
    MetByBaseline,
    Missed,
    NoAim,
    /// Floe or its rival has no figures.
    NotMeasured,
}

impl Verdict {
    fn describe(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::MetByBaseline => "met by the baseline",
            Verdict::Missed => "missed",
            Verdict::NoAim => "no aim",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A measured row and its aim.
#[derive(Clone, Copy)]
pub(crate) struct JudgedRow<'a> {
    row: &'a Row,
    aim: Aim,
    /// Medians of the ratios of single rounds, floe over its rival.
    time: Option<f64>,
    cpu: Option<f64>,
    /// Floe's own median time.
    seconds: Option<f64>,
    /// Floe's own peak memory.
    megabytes: Option<f64>,
    /// Floe's cost over the baseline.
    over_baseline: Option<f64>,
}

impl<'a> JudgedRow<'a> {
    /// Judges a row. The fact `baseline` of the row names the variants whose CPU times add up to
    /// the baseline.
    pub(crate) fn new(row: &'a Row, aim: Aim) -> JudgedRow<'a> {
        let ratio = |metric| median(&row.round_ratios(FLOE, aim.rival, metric)?);
        JudgedRow {
            row,
            aim,
            time: ratio(Metric::Time),
            cpu: ratio(Metric::Cpu),
            seconds: row.median(FLOE, Metric::Time),
            megabytes: megabytes(row, FLOE),
            over_baseline: over_baseline(row, aim),
        }
    }

    /// The name of the row.
    pub(crate) fn name(&self) -> &String {
        &self.row.name
    }

    /// Whether floe and its rival, if there is one, both have figures.
    pub(crate) fn is_measured(&self) -> bool {
        match self.aim.rival {
            NO_RIVAL => self.seconds.is_some(),
            _ => self.time.is_some(),
        }
    }

    fn verdict(&self) -> Verdict {
        if self.aim.is_none() {
            return Verdict::NoAim;
        }
        let limits = [
            (self.aim.time, self.time),
            (self.aim.cpu, self.cpu),
            (self.aim.seconds, self.seconds),
            (self.aim.megabytes, self.megabytes),
        ];
        let found = limits.iter().filter_map(|(most, found)| {
            let most = (*most)?;
            Some(found.map(|found| found <= most))
        });
        let found: Vec<Option<bool>> = found.collect();
        let is_near = self
            .over_baseline
            .is_some_and(|over| over <= BASELINE_MARGIN);
        if found.contains(&Some(false)) {
            if is_near {
                Verdict::MetByBaseline
            } else {
                Verdict::Missed
            }
        } else if found.contains(&None) {
            Verdict::NotMeasured
        } else {
            Verdict::Met
        }
    }

    /// The row in a line, for the terminal.
    pub(crate) fn describe(&self) -> String {
        let cost = |name: &str| Some(self.row.unit.format(self.row.median(name, Metric::Time)?));
        let costs = self.row.measurements.iter().map(|(name, measurement)| {
            let reason = match measurement {
                Measurement::Failed(reason) => reason.as_str(),
                Measurement::Ran(_) => "no figures",
            };
            format!("{name}: {}", cost(name).unwrap_or_else(|| reason.into()))
        });
        let costs: Vec<String> = costs.collect();
        let ratios = match self.aim.rival {
            NO_RIVAL => String::new(),
            rival => {
                let (time, cpu) = (or_dash(self.time), or_dash(self.cpu));
                format!(" | time {time}, CPU {cpu} of {rival}")
            }
        };
        format!(
            "{}{ratios}; aim {}: {}",
            costs.join(" | "),
            self.aim.describe(),
            self.verdict().describe()
        )
    }
}

/// Floe's time over the CPU time of the baseline on all cores; if the aim is on CPU time alone,
/// floe's CPU time over that of the baseline.
fn over_baseline(row: &Row, aim: Aim) -> Option<f64> {
    let parts = row.facts["baseline"].as_array()?;
    let parts: Option<Vec<f64>> = parts
        .iter()
        .map(|name| row.median(name.as_str()?, Metric::Cpu))
        .collect();
    let baseline: f64 = parts.filter(|parts| !parts.is_empty())?.iter().sum();
    if aim.time.is_none() {
        return Some(row.median(FLOE, Metric::Cpu)? / baseline);
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    Some(row.median(FLOE, Metric::Time)? / (baseline / cores))
}

/// The largest memory of a variant in any run, in units of 1,000,000 bytes.
fn megabytes(row: &Row, variant: &str) -> Option<f64> {
    let samples = row.samples(variant)?.iter();
    let largest = samples.filter_map(|sample| sample.peak_memory).max()?;
    Some(largest as f64 / 1e6)
}

/// The table of aims. It has columns for the memory if an aim limits more than ratios or a row has
/// no rival, and columns for the baseline and the machine if a row has one.
pub(crate) fn table(rows: &[JudgedRow<'_>]) -> String {
    let mut headings = vec![
        "work",
        "floe",
        "rival",
        "rival's cost",
        "time, floe / rival",
        "CPU, floe / rival",
        "aim",
        "result",
    ];
    let shows_memory = |aim: Aim| aim.is_absolute() || aim.rival == NO_RIVAL;
    let has_memory = rows.iter().any(|row| shows_memory(row.aim));
    if has_memory {
        headings.extend(["floe's peak, MB", "rival's peak, MB"]);
    }
    let has_baseline = rows.iter().any(|row| row.over_baseline.is_some());
    if has_baseline {
        headings.push("floe / baseline");
    }
    let has_machine = rows.iter().any(|row| machine(row.row).is_some());
    if has_machine {
        headings.push("machine");
    }
    let mut table = Table::new(&headings);
    for judged in rows {
        let cost = |name: &str| {
            let cost = judged.row.median(name, Metric::Time);
            match (cost, name) {
                (Some(cost), _) => judged.row.unit.format(cost),
                (None, NO_RIVAL) => NO_RIVAL.into(),
                (None, _) => "not run".into(),
            }
        };
        let mut cells = vec![
            judged.row.name.clone(),
            cost(FLOE),
            judged.aim.rival.into(),
            cost(judged.aim.rival),
            or_dash(judged.time),
            or_dash(judged.cpu),
            judged.aim.describe(),
            judged.verdict().describe().into(),
        ];
        if has_memory {
            let peak = |variant| or_dash(megabytes(judged.row, variant));
            cells.extend([peak(FLOE), peak(judged.aim.rival)]);
        }
        if has_baseline {
            cells.push(or_dash(judged.over_baseline));
        }
        if has_machine {
            cells.push(machine(judged.row).unwrap_or_default());
        }
        table.row(&cells);
    }
    table.into_markdown()
}

/// The machine of a row and the date, from its facts.
pub(crate) fn machine(row: &Row) -> Option<String> {
    let machine = &row.facts["machine"];
    let (cpu, date) = (machine["cpu"].as_str()?, machine["date"].as_str()?);
    Some(format!("{cpu}, {} cores, {date}", machine["cores"]))
}

/// The number of rows for each verdict, in a sentence.
pub(crate) fn tally(rows: &[JudgedRow<'_>]) -> String {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    format!(
        "Aims: {} met, {} met by the baseline, {} missed, {} not measured.\n",
        count(Verdict::Met),
        count(Verdict::MetByBaseline),
        count(Verdict::Missed),
        count(Verdict::NotMeasured)
    )
}

/// A chart of floe's speed as a multiple of the rival's, one bar per row.
pub(crate) fn chart(title: &str, rows: &[JudgedRow<'_>]) -> String {
    let bar = |judged: &JudgedRow<'_>| {
        let speed = judged.time.map(|time| 1.0 / time);
        let text = match speed {
            Some(speed) => format!("{} × {}", significant(speed), judged.aim.rival),
            None => "not run".into(),
        };
        Bar {
            label: judged.row.name.clone(),
            value: speed.map(|speed| (speed, 0.0)),
            text,
            colour: match judged.verdict() {
                Verdict::Met | Verdict::MetByBaseline => Colour::Green,
                Verdict::Missed => Colour::Red,
                Verdict::NoAim | Verdict::NotMeasured => Colour::Grey,
            },
        }
    };
    let chart = Chart {
        title: title.into(),
        note: "speed as a multiple of the rival's; green meets its aim, red misses it, grey has \
               none or was not measured"
            .into(),
        label_width: 330.0,
        cut_at: Some(CUT_AT),
        groups: vec![Group {
            heading: String::new(),
            bars: rows
                .iter()
                .filter(|row| row.aim.rival != NO_RIVAL)
                .map(bar)
                .collect(),
        }],
    };
    chart.svg()
}

/// A longer bar would flatten all others.
const CUT_AT: f64 = 3.0;

fn or_dash(value: Option<f64>) -> String {
    value.map_or("–".into(), significant)
}

#[cfg(test)]
mod tests;
