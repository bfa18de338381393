//! The report as JSON, with every sample.

use serde_json::{Value, json};

use super::{Report, Row};
use crate::rounds::Measurement;
use crate::statistics::Summary;

impl Report {
    /// One object; times are in seconds, memory in bytes.
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
    let measurements = row.measurements.iter().enumerate();
    let measurements: Vec<Value> = measurements
        .map(|(index, (name, cell))| one(row, index, name, cell))
        .collect();
    json!({ "name": row.name, "facts": row.facts, "variants": measurements })
}

fn one(row: &Row, index: usize, name: &str, cell: &Measurement) -> Value {
    let samples = match cell {
        Measurement::Failed(why) => return json!({ "name": name, "failed": why }),
        Measurement::Ran(samples) => samples,
    };
    let samples: Vec<Value> = samples
        .iter()
        .map(|sample| {
            json!({
                "seconds": brief(sample.seconds),
                "userSeconds": brief(sample.user_seconds),
                "systemSeconds": brief(sample.system_seconds),
                "peakMemory": sample.peak_memory,
            })
        })
        .collect();
    let mut object = json!({ "name": name, "samples": samples });
    let Some(compared) = row.compare(index) else {
        return object;
    };
    object["seconds"] = summary(&compared.seconds);
    object["cpuSeconds"] = summary(&compared.cpu_seconds);
    object["peakMemory"] = compared.peak_memory.into();
    if let (Some(ratio), Some(paired)) = (compared.ratio, compared.paired) {
        object["ratio"] = json!({
            "value": brief(ratio.value),
            "low": brief(ratio.low),
            "high": brief(ratio.high),
            "medianOfRounds": brief(paired),
        });
    }
    if let Some(test) = compared.welch {
        // JSON has no infinity; p says it all there.
        object["welch"] = json!({
            "t": test.t.is_finite().then(|| brief(test.t)),
            "degreesOfFreedom": brief(test.degrees),
            "p": test.p,
        });
    }
    object["verdict"] = compared.verdict.map(|verdict| verdict.describe()).into();
    object
}

fn summary(summary: &Summary) -> Value {
    json!({
        "mean": brief(summary.mean),
        "sd": brief(summary.sd),
        "median": brief(summary.median),
        "min": brief(summary.min),
        "max": brief(summary.max),
    })
}

/// Microseconds are more than a clock on a shared machine can tell.
fn brief(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn every_sample_and_every_figure_is_there() {
        let object = report().json();
        let variants = &object["rows"][0]["variants"];
        assert_eq!(variants[0]["samples"].as_array().unwrap().len(), 3);
        assert_eq!(variants[0]["seconds"]["median"], 1.0);
        assert!(variants[0].get("ratio").is_none());
        assert_eq!(variants[1]["ratio"]["value"], 0.5);
        assert_eq!(variants[1]["verdict"], "faster");
        assert!(variants[1]["welch"]["p"].as_f64().unwrap() < 0.01);
        assert!(
            variants[2]["failed"]
                .as_str()
                .unwrap()
                .contains("exit status")
        );
        assert_eq!(object["rows"][0]["facts"]["fileSystem"], "tmpfs");
        assert_eq!(object["interrupted"], false);
    }
}
