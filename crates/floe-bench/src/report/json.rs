//! The report as JSON, with every sample.

use serde_json::{Value, json};

use super::Report;
use crate::rounds::Measurement;
use crate::row::Row;
use crate::sample::Sample;
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
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

fn row(row: &Row) -> Value {
    let variants = 0..row.measurements.len();
    json!({
        "name": row.name,
        "unit": row.unit.name(),
        "facts": row.facts,
        "variants": variants.map(|index| variant(row, index)).collect::<Vec<_>>(),
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
    fn rounded_keeps_six_significant_digits() {
        assert_eq!(rounded(1_234_567.0), 1_234_570.0);
        assert_eq!(rounded(0.000_123_456_78), 0.000_123_457);
        assert_eq!(rounded(0.0), 0.0);
    }
}
