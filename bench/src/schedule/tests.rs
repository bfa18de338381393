//! Schedules with and without a limit, over journals of earlier runs.

use std::path::Path;

use floe_bench::{Sample, Unit};
use serde_json::Value;

use super::*;

const BENCHMARK: &str = "copy";

fn row(name: &str, rounds: usize) -> Row {
    let samples = vec![Sample::timed(1.0, 1.0); rounds];
    Row {
        name: name.into(),
        unit: Unit::Run,
        facts: json!({}),
        measurements: vec![(FLOE.into(), Measurement::Ran(samples))],
    }
}

fn schedule(directory: &Path, binary: &str, limit: Duration) -> Schedule {
    let circumstances = json!({ "floe": binary });
    let journal = Journal::new(directory.into(), circumstances);
    let rows = ["a → b", "a, b"].map(|row| (BENCHMARK, row.to_owned()));
    Schedule::new(journal, rows.to_vec(), limit)
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn finished_row_is_not_measured_again() {
    let directory = tempfile::tempdir().unwrap();
    let first = schedule(directory.path(), "1", HOUR);
    let measured = first.row(BENCHMARK, "a → b", |_| row("a → b", 3)).unwrap();
    let second = schedule(directory.path(), "1", HOUR);
    let kept = second.row(BENCHMARK, "a → b", |_| panic!("measured again"));
    let kept = kept.unwrap();
    assert_eq!(kept.measurements, measured.measurements);
    assert_eq!(kept.facts, measured.facts);
    let other = second.row(BENCHMARK, "a, b", |_| row("a, b", 1));
    assert_eq!(other.unwrap().name, "a, b");
}

#[test]
fn other_binary_measures_every_row() {
    let directory = tempfile::tempdir().unwrap();
    let first = schedule(directory.path(), "1", HOUR);
    first.row(BENCHMARK, "a, b", |_| row("a, b", 3)).unwrap();
    let second = schedule(directory.path(), "2", HOUR);
    let found = second.row(BENCHMARK, "a, b", |_| row("a, b", 5)).unwrap();
    assert_eq!(found.measurements[0].1.samples().len(), 5);
}

#[test]
fn row_without_samples_is_measured_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut failed = row("a, b", 0);
    failed.measurements[0].1 = Measurement::Failed("no luck".into());
    let first = schedule(directory.path(), "1", HOUR);
    let found = first.row(BENCHMARK, "a, b", |_| failed).unwrap();
    assert!(!is_measured(&found));
    let second = schedule(directory.path(), "1", HOUR);
    let found = second.row(BENCHMARK, "a, b", |_| row("a, b", 3)).unwrap();
    assert!(is_measured(&found));
}

#[test]
fn rows_after_the_limit_are_left_out_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let first = schedule(directory.path(), "1", HOUR);
    first.row(BENCHMARK, "a, b", |_| row("a, b", 3)).unwrap();
    let second = schedule(directory.path(), "1", Duration::ZERO);
    let left_out = second.row(BENCHMARK, "a → b", |_| panic!("measured"));
    assert!(left_out.is_none());
    assert!(
        second
            .row(BENCHMARK, "a, b", |_| panic!("measured"))
            .is_some()
    );
    assert_eq!(second.omissions().left_out, ["copy: a → b"]);
    assert!(second.has_work(BENCHMARK, &["a, b".into()]));
    second.leave_out(BENCHMARK);
    assert_eq!(second.omissions().left_out.len(), 1);
}

#[test]
fn benchmark_without_time_and_rows_has_no_work() {
    let directory = tempfile::tempdir().unwrap();
    let schedule = schedule(directory.path(), "1", Duration::ZERO);
    let rows = ["a → b", "a, b"].map(str::to_owned);
    assert!(!schedule.has_work(BENCHMARK, &rows));
    schedule.leave_out(BENCHMARK);
    assert_eq!(schedule.omissions().left_out.len(), 2);
}

#[test]
fn shortened_row_is_kept_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let schedule = schedule(directory.path(), "1", HOUR);
    let found = schedule.row(BENCHMARK, "a, b", |time| {
        time.stop()
            .store(true, std::sync::atomic::Ordering::Relaxed);
        row("a, b", 1)
    });
    assert!(found.is_some());
    assert_eq!(schedule.omissions().shortened, ["copy: a, b"]);
}

#[test]
fn rows_of_every_run_name_the_machine() {
    let found = Schedule::default().row(BENCHMARK, "a, b", |_| row("a, b", 1));
    let machine = &found.unwrap().facts["machine"];
    assert!(
        machine["cores"].is_number() && machine["date"] != Value::Null,
        "{machine}"
    );
}

#[test]
fn round_that_was_ended_in_its_middle_does_not_count() {
    let mut unequal = row("a, b", 3);
    let nix = row("a, b", 2).measurements.remove(0).1;
    unequal.measurements.push(("nix".into(), nix));
    let counts = equal_rounds(unequal).measurements;
    assert!(counts.iter().all(|(_, it)| it.samples().len() == 2));
}

#[test]
fn row_gets_more_than_an_equal_share() {
    assert_eq!(share(Duration::from_secs(100), 10), Duration::from_secs(15));
    assert_eq!(share(Duration::from_secs(100), 1), Duration::from_secs(100));
}
