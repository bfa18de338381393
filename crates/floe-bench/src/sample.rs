//! The cost of one run, and the unit in which rows are compared.

/// The cost of one run of a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Units of work done in that time, as named by the row's [`Unit`]; 1 for a command.
    pub units: f64,
    /// CPU seconds of the measured processes; `None` if the processes are not known.
    pub cpu_seconds: Option<f64>,
    /// The part of `cpu_seconds` spent in the kernel, if known.
    pub system_seconds: Option<f64>,
    /// Largest resident set in bytes.
    pub peak_memory: Option<u64>,
    /// Proportional set size in bytes after the run, for a server.
    pub final_memory: Option<u64>,
    /// Latency of single requests.
    pub latency: Option<Latency>,
}

/// Percentiles of request latency, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

impl Sample {
    /// A sample of which only the time is known.
    pub fn timed(seconds: f64, units: f64) -> Sample {
        Sample {
            seconds,
            units,
            ..Sample::default()
        }
    }
}

/// A cost of a run that is compared between variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Seconds per unit of work.
    Time,
    /// CPU seconds per unit of work.
    Cpu,
}

impl Metric {
    /// The cost of one unit of work; `None` if the sample lacks it.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let seconds = match self {
            Metric::Time => Some(sample.seconds),
            Metric::Cpu => sample.cpu_seconds,
        };
        seconds.map(|seconds| seconds / sample.units)
    }
}

/// The unit of work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// One run of a command, or one pass over a list of requests.
    Run,
    /// One request to a server.
    Request,
    /// One byte of a body.
    Byte,
    /// One call of a function.
    Call,
}

impl Unit {
    /// The factor from seconds per unit to the shown unit, and its symbol. Short runs are shown in
    /// milliseconds or microseconds.
    fn scale(self, seconds_per_unit: f64) -> (f64, &'static str) {
        match self {
            Unit::Run if seconds_per_unit < 1e-3 => (1e6, "µs"),
            Unit::Run if seconds_per_unit < 0.1 => (1e3, "ms"),
            Unit::Run => (1.0, "s"),
            Unit::Request => (1e6, "µs/request"),
            Unit::Byte => (1e9, "s/GB"),
            Unit::Call => (1e9, "ns/call"),
        }
    }

    /// A cost with its unit, such as "1.32 s" or "8.33 µs/request".
    pub fn format(self, seconds_per_unit: f64) -> String {
        let (factor, symbol) = self.scale(seconds_per_unit);
        format!("{} {symbol}", significant(seconds_per_unit * factor))
    }

    /// A function that formats costs in the unit and with the precision of `first`, and the symbol
    /// of the unit.
    pub(crate) fn formatter(self, first: f64) -> (impl Fn(f64) -> String, &'static str) {
        let (factor, symbol) = self.scale(first);
        let precision = decimals(first * factor) + 1;
        let format = move |cost: f64| format!("{:.precision$}", cost * factor);
        (format, symbol)
    }

    /// The name of the unit in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Unit::Run => "run",
            Unit::Request => "request",
            Unit::Byte => "byte",
            Unit::Call => "call",
        }
    }

    /// The unit with a name in JSON.
    pub(crate) fn from_name(name: &str) -> Option<Unit> {
        let all = [Unit::Run, Unit::Request, Unit::Byte, Unit::Call];
        all.into_iter().find(|unit| unit.name() == name)
    }
}

/// A positive value with three significant digits; more would be noise.
pub fn significant(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        _ if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        _ if value >= 9_995.0 => format!("{:.1}k", value / 1e3),
        _ if value < 9.995e-4 => format!("{value:.1e}"),
        _ => format!("{value:.*}", decimals(value)),
    }
}

/// The decimals that leave three significant digits, at most five.
fn decimals(value: f64) -> usize {
    let limits = [99.95, 9.995, 0.9995, 0.09995, 0.009995];
    limits.iter().filter(|limit| value < **limit).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_keeps_three_digits() {
        for (value, text) in [
            (134_567.0, "135k"),
            (38_912.0, "38.9k"),
            (512.3, "512"),
            (0.0123, "0.0123"),
            (0.001_234, "0.00123"),
            (9.999, "10.0"),
            (0.000_046, "4.6e-5"),
        ] {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn unit_format_scales_seconds_per_unit() {
        assert_eq!(Unit::Run.format(1.324), "1.32 s");
        assert_eq!(Unit::Run.format(0.0127), "12.7 ms");
        assert_eq!(Unit::Run.format(0.000_037), "37.0 µs");
        assert_eq!(Unit::Request.format(1.0 / 120e3), "8.33 µs/request");
        assert_eq!(Unit::Byte.format(1e-9), "1.00 s/GB");
        assert_eq!(Unit::Call.format(41.3e-9), "41.3 ns/call");
    }

    #[test]
    fn metric_without_cpu_time_is_none() {
        let sample = Sample::timed(2.0, 4.0);
        assert_eq!(Metric::Time.of(&sample), Some(0.5));
        assert_eq!(Metric::Cpu.of(&sample), None);
    }
}
