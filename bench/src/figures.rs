//! Samples, their medians, and what an aim makes of them. Every benchmark uses these.

use serde_json::{Value, json};

use super::processes::Memory;

/// One round of one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) requests: u64,
    /// Times that the whole work was done; a load of single requests has as many as requests.
    pub(super) passes: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Of the server; absent when its processes are not known.
    pub(super) cpu_seconds: Option<f64>,
    /// The median and the 99th percentile of requests, in milliseconds.
    pub(super) latency: Option<(f64, f64)>,
    pub(super) memory: Option<Memory>,
}

impl Sample {
    fn json(&self) -> Value {
        json!({
            "requests": self.requests,
            "passes": self.passes,
            "bytes": self.bytes,
            "seconds": brief(self.seconds),
            "serverCpuSeconds": self.cpu_seconds.map(brief),
            "p50Milliseconds": self.latency.map(|(p50, _)| p50),
            "p99Milliseconds": self.latency.map(|(_, p99)| p99),
            "peakRssKib": self.memory.map(|memory| memory.peak_rss),
            "pssKib": self.memory.map(|memory| memory.pss),
        })
    }
}

/// What of a row is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measure {
    /// Requests in a second; CPU for 1,000 of them.
    Requests,
    /// Bytes in a second; CPU for 10⁹ of them.
    Bytes,
    /// The time of one pass, and its CPU.
    Time,
}

impl Measure {
    fn speed(self, sample: &Sample) -> f64 {
        let work = match self {
            Measure::Requests => sample.requests,
            Measure::Bytes => sample.bytes,
            Measure::Time => sample.passes,
        };
        work as f64 / sample.seconds
    }

    fn cpu(self, sample: &Sample) -> Option<f64> {
        let units = match self {
            Measure::Requests => sample.requests as f64 / 1e3,
            Measure::Bytes => sample.bytes as f64 / 1e9,
            Measure::Time => sample.passes as f64,
        };
        sample.cpu_seconds.map(|cpu| cpu / units)
    }
}

/// What a variant did in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Measurement {
    Ran(Vec<Sample>),
    /// Why there are no figures.
    NotRun(String),
}

/// The medians of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    /// Requests, megabytes or passes in a second.
    pub(super) speed: f64,
    /// For 1,000 requests, a gigabyte or a pass.
    pub(super) cpu: Option<f64>,
    pub(super) latency: Option<(f64, f64)>,
}

impl Measurement {
    /// The samples as they are, and the medians of all that can be made of them.
    pub(super) fn json(&self) -> Value {
        let samples = match self {
            Measurement::Ran(samples) => samples,
            Measurement::NotRun(why) => return json!({ "notRun": why }),
        };
        let of = |value: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = samples.iter().map(value).collect();
            median(&values?).map(brief)
        };
        let speed = |measure: Measure| of(&|sample| Some(measure.speed(sample)));
        let cpu = |measure: Measure| of(&|sample| measure.cpu(sample));
        json!({
            "samples": samples.iter().map(Sample::json).collect::<Vec<_>>(),
            "medians": {
                "requestsPerSecond": speed(Measure::Requests),
                "megabytesPerSecond": speed(Measure::Bytes).map(|speed| brief(speed / 1e6)),
                "secondsPerPass": speed(Measure::Time).map(|speed| brief(1.0 / speed)),
                "cpuSecondsPerThousand": cpu(Measure::Requests),
                "cpuSecondsPerGigabyte": cpu(Measure::Bytes),
                "cpuSecondsPerPass": cpu(Measure::Time),
                "p50Milliseconds": of(&|sample| Some(sample.latency?.0)),
                "p99Milliseconds": of(&|sample| Some(sample.latency?.1)),
                "peakRssKib": of(&|sample| Some(sample.memory?.peak_rss as f64)),
                "pssKib": of(&|sample| Some(sample.memory?.pss as f64)),
            },
        })
    }

    pub(super) fn figure(&self, measure: Measure) -> Option<Figure> {
        let Measurement::Ran(samples) = self else {
            return None;
        };
        let of = |value: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = samples.iter().map(value).collect();
            median(&values?)
        };
        let p50 = of(&|sample| sample.latency.map(|(p50, _)| p50));
        let p99 = of(&|sample| sample.latency.map(|(_, p99)| p99));
        Some(Figure {
            speed: of(&|sample| Some(measure.speed(sample)))?,
            cpu: of(&|sample| measure.cpu(sample)),
            latency: p50.zip(p99),
        })
    }
}

/// Six digits that count: the others are noise, and half of a result's bytes.
fn brief(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The middle value, or the mean of the two in the middle; `None` without values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 {
        upper
    } else {
        (sorted[middle - 1] + upper) / 2.0
    })
}

/// What floe wants to reach, beside a rival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Aim {
    pub(super) speed: Option<Speed>,
    /// At most so many times the rival's CPU.
    pub(super) cpu: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Speed {
    /// At least so many times the speed of nginx.
    AtLeast(f64),
    /// At most so many times the time of nginx.
    TimeAtMost(f64),
    /// More than so many times the speed of nix-serve.
    OverNixServe(f64),
}

/// The variants that aims speak of.
pub(super) const FLOE: &str = "floe";
pub(super) const NGINX: &str = "nginx";
pub(super) const NIX_SERVE: &str = "nix-serve";

/// A row as it was measured.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) measure: Measure,
    pub(super) aim: Aim,
    /// Variant and what it did, in the order of the table.
    pub(super) measurements: Vec<(String, Measurement)>,
}

/// Floe beside another variant; more is faster, and more is more expensive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) speed: f64,
    pub(super) cpu: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    Met,
    Missed,
    NoAim,
    /// What the aim speaks of has no figures.
    NotMeasured,
}

impl Row {
    fn samples(&self, variant: &str) -> Option<&[Sample]> {
        let (_, cell) = self.measurements.iter().find(|(name, _)| name == variant)?;
        match cell {
            Measurement::Ran(samples) => Some(samples),
            Measurement::NotRun(_) => None,
        }
    }

    /// The medians of what the rounds gave, each for itself: a machine that is slow for a while is
    /// slow for both, where medians of each may come from different rounds.
    pub(super) fn ratio(&self, rival: &str) -> Option<Ratio> {
        let (ours, theirs) = (self.samples(FLOE)?, self.samples(rival)?);
        if ours.len() != theirs.len() {
            return None;
        }
        let rounds = || ours.iter().zip(theirs);
        let speeds = rounds().map(|(a, b)| self.measure.speed(a) / self.measure.speed(b));
        let cpu = rounds().map(|(a, b)| {
            // Less than a tick of the kernel's clock is no figure to divide by.
            let theirs = self.measure.cpu(b).filter(|cpu| *cpu > 0.0)?;
            Some(self.measure.cpu(a)? / theirs)
        });
        Some(Ratio {
            speed: median(&speeds.collect::<Vec<_>>())?,
            cpu: cpu.collect::<Option<Vec<_>>>().and_then(|cpu| median(&cpu)),
        })
    }

    /// Whom the aim of this row names.
    pub(super) fn rival(&self) -> &'static str {
        match self.aim.speed {
            Some(Speed::OverNixServe(_)) => NIX_SERVE,
            _ => NGINX,
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        if self.aim == Aim::default() {
            return Verdict::NoAim;
        }
        let Some(ratio) = self.ratio(self.rival()) else {
            return Verdict::NotMeasured;
        };
        let fast = self.aim.speed.is_none_or(|speed| match speed {
            Speed::AtLeast(least) => ratio.speed >= least,
            Speed::TimeAtMost(most) => 1.0 / ratio.speed <= most,
            Speed::OverNixServe(times) => ratio.speed > times,
        });
        let frugal = match (self.aim.cpu, ratio.cpu) {
            (None, _) => Some(true),
            (Some(most), Some(cpu)) => Some(cpu <= most),
            (Some(_), None) => None,
        };
        match (fast, frugal) {
            (true, Some(true)) => Verdict::Met,
            (true, None) => Verdict::NotMeasured,
            _ => Verdict::Missed,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sample(requests: u64, cpu: f64) -> Sample {
        Sample {
            requests,
            passes: requests,
            bytes: requests * 1000,
            seconds: 2.0,
            cpu_seconds: Some(cpu),
            latency: Some((0.5, 2.0)),
            memory: None,
        }
    }

    /// A row in which each named variant did so many requests for so much CPU, or did not run.
    pub(crate) fn row(aim: Aim, measurements: &[(&str, Option<(u64, f64)>)]) -> Row {
        let cell = |ran: Option<(u64, f64)>| match ran {
            Some((requests, cpu)) => Measurement::Ran(vec![sample(requests, cpu); 3]),
            None => Measurement::NotRun("absent".into()),
        };
        Row {
            name: "present narinfo, 16 connections".into(),
            measure: Measure::Requests,
            aim,
            measurements: measurements
                .iter()
                .map(|&(name, ran)| (name.into(), cell(ran)))
                .collect(),
        }
    }

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_slow_while_of_the_machine_is_slow_for_both() {
        let mut row = row(Aim::default(), &[(FLOE, None), (NGINX, None)]);
        let ran = |requests: &[u64]| {
            let samples = requests.iter().map(|requests| sample(*requests, 1.0));
            Measurement::Ran(samples.collect())
        };
        // In each round floe is faster by a tenth; the medians alone would say half.
        row.measurements[0].1 = ran(&[110, 550, 110]);
        row.measurements[1].1 = ran(&[100, 500, 200]);
        let speed = row.ratio(NGINX).unwrap().speed;
        assert!((speed - 1.1).abs() < 1e-9, "{speed}");
        row.measurements[1].1 = ran(&[100]);
        assert_eq!(row.ratio(NGINX), None, "rounds are missing");
    }

    #[test]
    fn six_digits_of_a_figure_are_kept() {
        assert_eq!(brief(1_234_567.0), 1_234_570.0);
        assert_eq!(brief(0.000_123_456_78), 0.000_123_457);
        assert_eq!(brief(0.0), 0.0);
    }

    #[test]
    fn an_outlier_moves_no_figure() {
        let samples = vec![sample(100, 1.0), sample(10_000, 9.0), sample(100, 1.0)];
        let figure = Measurement::Ran(samples).figure(Measure::Requests).unwrap();
        assert_eq!(figure.speed, 50.0);
        assert_eq!(figure.cpu, Some(10.0));
    }

    #[test]
    fn an_aim_is_met_by_speed_and_cpu_together() {
        let aim = Aim {
            speed: Some(Speed::AtLeast(1.1)),
            cpu: Some(0.75),
        };
        for (floe, verdict) in [
            (Some((110, 0.8)), Verdict::Met),
            (Some((109, 0.5)), Verdict::Missed),
            (Some((200, 1.9)), Verdict::Missed),
            (None, Verdict::NotMeasured),
        ] {
            let row = row(aim, &[(FLOE, floe), (NGINX, Some((100, 1.0)))]);
            assert_eq!(row.verdict(), verdict, "{floe:?}");
        }
    }

    #[test]
    fn an_aim_over_nix_serve_is_not_judged_by_another() {
        let aim = Aim {
            speed: Some(Speed::OverNixServe(2.0)),
            cpu: None,
        };
        let measurements = [(FLOE, Some((300, 1.0))), (NGINX, Some((100, 1.0)))];
        assert_eq!(row(aim, &measurements).verdict(), Verdict::NotMeasured);
        let beside = [&measurements[..], &[(NIX_SERVE, Some((100, 1.0)))]].concat();
        assert_eq!(row(aim, &beside).verdict(), Verdict::Met);
    }

    #[test]
    fn times_are_compared_as_times() {
        let aim = |most| Aim {
            speed: Some(Speed::TimeAtMost(most)),
            cpu: None,
        };
        let measurements = [(FLOE, Some((96, 1.0))), (NGINX, Some((100, 1.0)))];
        assert_eq!(row(aim(1.05), &measurements).verdict(), Verdict::Met);
        assert_eq!(row(aim(1.0), &measurements).verdict(), Verdict::Missed);
    }
}
