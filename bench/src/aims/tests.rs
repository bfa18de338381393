//! Verdicts on rows with known figures.

use floe_bench::{Sample, Unit};
use serde_json::json;

use super::*;

const NGINX: &str = "nginx";
const AIM: Aim = Aim::speed(NGINX, 1.1).cpu(0.75);

/// Three equal runs with these wall-clock and CPU seconds.
fn ran(seconds: f64, cpu_seconds: f64) -> Measurement {
    let sample = Sample {
        cpu_seconds: Some(cpu_seconds),
        ..Sample::timed(seconds, 1.0)
    };
    Measurement::Ran(vec![sample; 3])
}

/// Runs that use one core all the time.
fn busy(seconds: &[f64]) -> Measurement {
    let sample = |seconds: &f64| Sample {
        cpu_seconds: Some(*seconds),
        ..Sample::timed(*seconds, 1.0)
    };
    Measurement::Ran(seconds.iter().map(sample).collect())
}

fn failed() -> Measurement {
    Measurement::Failed("no such luck".into())
}

fn row(measurements: Vec<(&str, Measurement)>) -> Row {
    let named = |(name, measurement): (&str, _)| (name.to_owned(), measurement);
    Row {
        name: "present narinfo".into(),
        unit: Unit::Run,
        facts: json!({ "baseline": ["hash"] }),
        measurements: measurements.into_iter().map(named).collect(),
    }
}

fn verdict(aim: Aim, measurements: Vec<(&str, Measurement)>) -> Verdict {
    JudgedRow::new(&row(measurements), aim).verdict()
}

#[test]
fn aim_is_met_by_its_ratio_or_by_the_baseline() {
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let aim = Aim::time("nix", 0.55);
    for (floe, hash, expected) in [
        (&[0.5, 1.0, 2.0], 0.1, Verdict::Met),
        (&[0.9, 1.8, 3.6], 1.7 * cores, Verdict::MetByBaseline),
        (&[0.9, 1.8, 3.6], cores, Verdict::Missed),
    ] {
        let nix = busy(&[1.0, 2.0, 4.0]);
        let measurements = vec![("nix", nix), (FLOE, busy(floe)), ("hash", busy(&[hash]))];
        assert_eq!(verdict(aim, measurements), expected);
    }
}

#[test]
fn cpu_aim_compares_cpu_time_with_the_baseline() {
    let aim = Aim::none("nix").cpu(0.85);
    let one = |seconds: f64| busy(&[seconds]);
    let measurements = vec![("nix", one(1.0)), (FLOE, one(1.1)), ("hash", one(1.0))];
    assert_eq!(verdict(aim, measurements), Verdict::MetByBaseline);
}

#[test]
fn row_without_rival_is_not_measured_and_says_why() {
    let row = row(vec![("nix", failed()), (FLOE, busy(&[1.0]))]);
    let judged = JudgedRow::new(&row, Aim::time("nix", 0.55));
    assert!(!judged.is_measured());
    let text = judged.describe();
    assert!(text.contains("nix: no such luck"), "{text}");
    assert!(text.ends_with("not measured"), "{text}");
}

#[test]
fn aim_is_met_by_time_and_cpu_together() {
    for (floe, expected) in [
        (ran(1.0 / 1.1, 0.7), Verdict::Met),
        (ran(1.0 / 1.09, 0.5), Verdict::Missed),
        (ran(0.5, 0.8), Verdict::Missed),
        (failed(), Verdict::NotMeasured),
    ] {
        let measurements = vec![(FLOE, floe.clone()), (NGINX, ran(1.0, 1.0))];
        assert_eq!(verdict(AIM, measurements), expected, "{floe:?}");
    }
}

#[test]
fn aim_is_judged_by_its_own_rival_only() {
    let aim = Aim::speed("nix-serve", 2.0);
    let mut measurements = vec![(FLOE, ran(1.0, 1.0)), (NGINX, ran(3.0, 1.0))];
    assert_eq!(verdict(aim, measurements.clone()), Verdict::NotMeasured);
    measurements.push(("nix-serve", ran(3.0, 1.0)));
    assert_eq!(verdict(aim, measurements), Verdict::Met);
}

#[test]
fn time_aim_limits_the_ratio_of_times() {
    let measurements = vec![(FLOE, ran(1.04, 1.0)), (NGINX, ran(1.0, 1.0))];
    let of = |most| verdict(Aim::time(NGINX, most), measurements.clone());
    assert_eq!(of(1.05), Verdict::Met);
    assert_eq!(of(1.0), Verdict::Missed);
}

#[test]
fn table_has_costs_ratios_and_verdict() {
    let row = row(vec![(FLOE, ran(1.0, 0.75)), (NGINX, ran(1.25, 1.0))]);
    let text = table(&[JudgedRow::new(&row, AIM)]);
    assert_eq!(
        text.lines().last(),
        Some(
            "| present narinfo | 1.00 s | nginx | 1.25 s | 0.800 | 0.750 \
             | time ≤ 0.909, CPU ≤ 0.75 | met |"
        )
    );
}

#[test]
fn table_has_no_ratio_without_the_rival() {
    let row = row(vec![(FLOE, ran(1.0, 1.0)), (NGINX, failed())]);
    let text = table(&[JudgedRow::new(&row, AIM)]);
    assert!(text.contains("| nginx | not run | – | – |"), "{text}");
    assert!(text.contains("| not measured |"), "{text}");
}

#[test]
fn chart_shows_speed_as_a_multiple_of_the_rival() {
    let fast = row(vec![(FLOE, ran(0.5, 0.5)), (NGINX, ran(1.0, 1.0))]);
    let slow = row(vec![(FLOE, ran(2.0, 0.5)), (NGINX, ran(1.0, 1.0))]);
    let absent = row(vec![(FLOE, failed()), (NGINX, ran(1.0, 1.0))]);
    let rows = [&fast, &slow, &absent].map(|row| JudgedRow::new(row, AIM));
    let svg = chart("floe & nginx", &rows);
    for part in [
        "2.00 × nginx",
        "0.500 × nginx",
        "not run",
        "floe &amp; nginx",
    ] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
}

#[test]
fn absolute_aim_limits_time_and_memory_without_a_rival() {
    let aim = Aim::none(NO_RIVAL).seconds(1.0).megabytes(50.0);
    let run = |seconds: f64, bytes: u64| {
        let sample = Sample {
            peak_memory: Some(bytes),
            ..Sample::timed(seconds, 1.0)
        };
        vec![(FLOE, Measurement::Ran(vec![sample; 3]))]
    };
    for (seconds, bytes, expected) in [
        (0.9, 49_000_000, Verdict::Met),
        (1.1, 49_000_000, Verdict::Missed),
        (0.9, 51_000_000, Verdict::Missed),
    ] {
        assert_eq!(verdict(aim, run(seconds, bytes)), expected);
    }
    assert_eq!(verdict(aim, vec![(FLOE, failed())]), Verdict::NotMeasured);
    let row = row(run(0.9, 49_000_000));
    let table = table(&[JudgedRow::new(&row, aim)]);
    assert!(
        table.contains("| time ≤ 1 s, peak ≤ 50 MB | met | 49.0 | – |"),
        "{table}"
    );
}

#[test]
fn table_names_the_machine_of_each_row() {
    let mut row = row(vec![("nix", ran(1.0, 1.0)), (FLOE, ran(0.5, 0.5))]);
    let aim = Aim::none("nix");
    let before = table(&[JudgedRow::new(&row, aim)]);
    assert!(!before.contains("machine"), "{before}");
    row.facts["machine"] = json!({ "cpu": "A CPU", "cores": 2, "date": "2026-01-02" });
    let after = table(&[JudgedRow::new(&row, aim)]);
    assert!(after.contains("| A CPU, 2 cores, 2026-01-02 |"), "{after}");
}
