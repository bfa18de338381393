//! Turns, failures and interruptions, with shell scripts as variants.

use std::fs;
use std::time::Duration;

use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn variant<'a>(&'a self, name: &str, script: &str) -> Variant<'a> {
        let directory = self.0.path();
        let destination = directory.join(format!("{name}-destination"));
        let script = format!(
            "echo {name} >> {}; mkdir {} || exit 9; {script}",
            directory.join("log").display(),
            destination.display()
        );
        Variant {
            name: name.into(),
            invocation: Invocation {
                arguments: vec!["sh".into(), "-c".into(), script],
                environment: Vec::new(),
                stderr: directory.join("stderr"),
                deadline: Duration::from_secs(60),
            },
            scratch_paths: vec![destination],
            prepare: Box::new(|| Ok(())),
            check: Box::new(|| Ok(())),
        }
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn place() -> Place {
    Place(tempfile::tempdir().unwrap())
}

const PLAN: Repetitions = Repetitions {
    warmup: 1,
    iterations: 2,
};

#[test]
fn everybody_takes_turns_and_each_round_begins_with_another_one() {
    let place = place();
    let variants = [place.variant("a", ""), place.variant("b", "")];
    let never = AtomicBool::new(false);
    let mut seen = Vec::new();
    let measurements = rounds(&variants, PLAN, &never, &mut |round, measurements| {
        seen.push((round, measurements[0].samples().len()));
    });
    assert_eq!(place.log(), ["a", "b", "b", "a", "a", "b"]);
    assert!(
        measurements.iter().all(|cell| cell.samples().len() == 2),
        "{measurements:?}"
    );
    assert_eq!(seen, [(1, 0), (2, 1), (3, 2)]);
    assert!(!place.0.path().join("a-destination").exists());
}

#[test]
fn who_fails_once_has_no_figures_and_does_not_run_again() {
    let place = place();
    let log = place.0.path().join("log");
    // The second run of b, the first that counts, fails.
    let fails = format!("test $(grep -c b {}) -lt 2", log.display());
    let variants = [place.variant("a", ""), place.variant("b", &fails)];
    let measurements = rounds(&variants, PLAN, &AtomicBool::new(false), &mut |_, _| {});
    assert_eq!(measurements[0].samples().len(), 2);
    assert!(matches!(&measurements[1], Measurement::Failed(why) if why.contains("exit status")));
    assert_eq!(place.log().iter().filter(|name| *name == "b").count(), 2);
}

#[test]
fn a_wrong_result_voids_what_was_measured_before() {
    let place = place();
    let mut variant = place.variant("a", "");
    let checks = std::cell::Cell::new(0);
    variant.check = Box::new(|| {
        checks.set(checks.get() + 1);
        match checks.get() {
            3 => Err(BenchError::Result("a path is missing".into())),
            _ => Ok(()),
        }
    });
    let measurements = rounds(&[variant], PLAN, &AtomicBool::new(false), &mut |_, _| {});
    assert!(
        matches!(&measurements[0], Measurement::Failed(why) if why.contains("a path is missing"))
    );
}

#[test]
fn a_stop_keeps_what_was_measured() {
    let place = place();
    let stop = AtomicBool::new(false);
    let variants = [place.variant("a", "")];
    let plan = Repetitions {
        warmup: 0,
        iterations: 100,
    };
    let measurements = rounds(&variants, plan, &stop, &mut |round, _| {
        stop.store(round == 3, Ordering::Relaxed);
    });
    assert_eq!(measurements[0].samples().len(), 3);
    assert_eq!(place.log().len(), 3);
}
