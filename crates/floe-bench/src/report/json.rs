//! The report as JSON, with every sample.

use serde_json::{Value, json};

use super::Report;
use crate::rounds::Measurement;
use crate::row::Row;
use crate::sample::{Latency, Sample, Unit};
use crate::statistics::Summary;

impl Report {
    /// One object with all samples and statistics. Times are in seconds, memory is in bytes;
    /// statistics are per unit of work.
    pub fn json(&self) -> Value {
        json!({
            "title": self.title,
            "machine": self.machine,
            "notes": self.notes,
            "interrupted": self.interrupted,
            "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    /// An object with all samples and statistics, as in [`Report::json`].
    pub fn json(&self) -> Value {
        let variants = 0..self.measurements.len();
        json!({
            "name": self.name,
            "unit": self.unit.name(),
            "facts": self.facts,
            "variants": variants.map(|index| variant(self, index)).collect::<Vec<_>>(),
        })
    }

    /// Reads the object of [`Row::json`]; `None` if a field is missing. Numbers have six
    /// significant digits.
    pub fn from_json(object: &Value) -> Option<Row> {
        let variants = object["variants"].as_array()?.iter();
        Some(Row {
            name: object["name"].as_str()?.into(),
            unit: Unit::from_name(object["unit"].as_str()?)?,
            facts: object["facts"].clone(),
            measurements: variants.map(measurement).collect::<Option<_>>()?,
        })
    }
}

fn measurement(variant: &Value) -> Option<(String, Measurement)> {
    let name = variant["name"].as_str()?.to_owned();
    if let Some(reason) = variant["failed"].as_str() {
        return Some((name, Measurement::Failed(reason.into())));
    }
    let samples = variant["samples"].as_array()?.iter();
    let samples: Option<Vec<Sample>> = samples.map(parsed_sample).collect();
    Some((name, Measurement::Ran(samples?)))
}

fn parsed_sample(object: &Value) -> Option<Sample> {
    let number = |field: &str| object[field].as_f64();
    let latency = number("p50Seconds").zip(number("p99Seconds"));
    Some(Sample {
        seconds: number("seconds")?,
        units: number("units").unwrap_or(1.0),
        cpu_seconds: number("cpuSeconds"),
        system_seconds: number("systemSeconds"),
        peak_memory: object["peakMemory"].as_u64(),
        final_memory: object["finalMemory"].as_u64(),
        latency: latency.map(|(p50, p99)| Latency { p50, p99 }),
    })
}

fn variant(row: &Row, index: usize) -> Value {
    let (name, measurement) = &row.measurements[index];
    if let Measurement::Failed(reason) = measurement {
        return json!({ "name": name, "failed": reason });
    }
    let samples: Vec<Value> = measurement.samples().iter().map(sample).collect();
    let mut object = json!({ "name": name, "samples": samples });
    let Some(found) = row.compare(index) else {
        return object;
    };
    object["seconds"] = summary(&found.seconds);
    object["cpuSeconds"] = found.cpu_seconds.as_ref().map(summary).into();
    object["peakMemory"] = found.peak_memory.into();
    if let (Some(ratio), Some(median)) = (found.ratio, found.median_ratio) {
        object["ratio"] = json!({
            "value": rounded(ratio.value),
            "low": rounded(ratio.low),
            "high": rounded(ratio.high),
            "medianOfRounds": rounded(median),
        });
    }
    if let Some(test) = found.welch {
        // JSON has no infinity; p is 0 in that case.
        object["welch"] = json!({
            "t": test.t.is_finite().then(|| rounded(test.t)),
            "degreesOfFreedom": rounded(test.degrees),
            "p": test.p,
        });
    }
    object["verdict"] = found.verdict.into();
    object
}

/// The fields that are known.
fn sample(sample: &Sample) -> Value {
    let mut object = json!({
        "seconds": rounded(sample.seconds),
        "units": (sample.units != 1.0).then_some(rounded(sample.units)),
        "cpuSeconds": sample.cpu_seconds.map(rounded),
        "systemSeconds": sample.system_seconds.map(rounded),
        "p50Seconds": sample.latency.map(|latency| rounded(latency.p50)),
        "p99Seconds": sample.latency.map(|latency| rounded(latency.p99)),
        "peakMemory": sample.peak_memory,
        "finalMemory": sample.final_memory,
    });
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

fn summary(summary: &Summary) -> Value {
    json!({
        "mean": rounded(summary.mean),
        "sd": rounded(summary.sd),
        "median": rounded(summary.median),
        "min": rounded(summary.min),
        "max": rounded(summary.max),
    })
}

/// A value with six significant digits; further digits are noise and half of the file.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn json_has_every_sample_and_statistic() {
        let object = report().json();
        let variants = &object["rows"][0]["variants"];
        assert_eq!(variants[0]["samples"].as_array().unwrap().len(), 3);
        assert_eq!(variants[0]["samples"][0]["cpuSeconds"], 0.75);
        assert_eq!(variants[0]["seconds"]["median"], 1.0);
        assert!(variants[0].get("ratio").is_none());
        assert_eq!(variants[1]["ratio"]["value"], 0.5);
        assert_eq!(variants[1]["verdict"], "faster");
        assert!(variants[1]["welch"]["p"].as_f64().unwrap() < 0.01);
        let reason = variants[2]["failed"].as_str().unwrap();
        assert!(reason.contains("exit status"), "{reason}");
        assert_eq!(object["rows"][0]["facts"]["fileSystem"], "tmpfs");
        assert_eq!(object["interrupted"], false);
    }

    #[test]
    fn row_survives_json() {
        let mut row = report().rows.remove(0);
        if let Measurement::Ran(samples) = &mut row.measurements[1].1 {
            samples[0].units = 3.0;
            samples[0].final_memory = Some(7);
            samples[0].latency = Some(Latency {
                p50: 0.5,
                p99: 0.75,
            });
        }
        let text = row.json().to_string();
        let found = Row::from_json(&serde_json::from_str(&text).unwrap()).unwrap();
        // The floats themselves may differ after the sixth digit.
        assert_eq!(found.json(), row.json());
        assert!(Row::from_json(&json!({ "name": "x" })).is_none());
    }

    #[test]
    fn rounded_keeps_six_significant_digits() {
        assert_eq!(rounded(1_234_567.0), 1_234_570.0);
        assert_eq!(rounded(0.000_123_456_78), 0.000_123_457);
        assert_eq!(rounded(0.0), 0.0);
    }
}
