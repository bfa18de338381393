//! Turns, failures and interruptions, with shell scripts as variants.

use std::fs;
use std::time::Duration;

use super::*;

struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A variant that appends its name to the log, and then runs a script.
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
            home: directory.join(format!("{name}-home")),
            scratch_paths: vec![destination],
            synced: None,
            prepare: Box::new(|| Ok(())),
            check: Box::new(|| Ok(())),
        }
    }

    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn scratch() -> Scratch {
    Scratch(tempfile::tempdir().unwrap())
}

const REPETITIONS: Repetitions = Repetitions {
    warmup: 1,
    iterations: 2,
};

fn run_to_end(variants: &[Variant<'_>]) -> Vec<Measurement> {
    let never = AtomicBool::new(false);
    rounds(variants, REPETITIONS, &never, &mut |_, _| {})
}

#[test]
fn variants_take_turns_and_rotate_each_round() {
    let scratch = scratch();
    let variants = [scratch.variant("a", ""), scratch.variant("b", "")];
    let never = AtomicBool::new(false);
    let mut seen = Vec::new();
    let measurements = rounds(&variants, REPETITIONS, &never, &mut |round, so_far| {
        seen.push((round, so_far[0].samples().len()));
    });
    assert_eq!(scratch.log(), ["a", "b", "b", "a", "a", "b"]);
    let counts: Vec<usize> = measurements.iter().map(|it| it.samples().len()).collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(seen, [(1, 0), (2, 1), (3, 2)]);
    assert!(!scratch.0.path().join("a-destination").exists());
}

#[test]
fn failed_variant_has_no_samples_and_stops_running() {
    let scratch = scratch();
    let log = scratch.0.path().join("log");
    // The second run of b, the first one that counts, fails.
    let fails = format!("test $(grep -c b {}) -lt 2", log.display());
    let variants = [scratch.variant("a", ""), scratch.variant("b", &fails)];
    let measurements = run_to_end(&variants);
    assert_eq!(measurements[0].samples().len(), 2);
    assert!(matches!(&measurements[1], Measurement::Failed(why) if why.contains("exit status")));
    assert_eq!(scratch.log().iter().filter(|name| *name == "b").count(), 2);
}

#[test]
fn wrong_result_discards_earlier_samples() {
    let scratch = scratch();
    let mut variant = scratch.variant("a", "");
    let checks = std::cell::Cell::new(0);
    variant.check = Box::new(|| {
        checks.set(checks.get() + 1);
        match checks.get() {
            3 => Err(BenchError::Result("a path is missing".into())),
            _ => Ok(()),
        }
    });
    let measurements = run_to_end(&[variant]);
    let reason = "a path is missing";
    assert!(matches!(&measurements[0], Measurement::Failed(why) if why.contains(reason)));
}

#[test]
fn interruption_keeps_the_samples_so_far() {
    let scratch = scratch();
    let stop = AtomicBool::new(false);
    let variants = [scratch.variant("a", "")];
    let repetitions = Repetitions {
        warmup: 0,
        iterations: 100,
    };
    let measurements = rounds(&variants, repetitions, &stop, &mut |round, _| {
        stop.store(round == 3, Ordering::Relaxed);
    });
    assert_eq!(measurements[0].samples().len(), 3);
    assert_eq!(scratch.log().len(), 3);
}
