//! Turns, failures and interruptions, with shell scripts as contestants.

use std::fs;
use std::time::Duration;

use super::*;

struct Place(tempfile::TempDir);

impl Place {
    fn contestant<'a>(&'a self, name: &str, script: &str) -> Contestant<'a> {
        let directory = self.0.path();
        let destination = directory.join(format!("{name}-destination"));
        let script = format!(
            "echo {name} >> {}; mkdir {} || exit 9; {script}",
            directory.join("log").display(),
            destination.display()
        );
        Contestant {
            name: name.into(),
            invocation: Invocation {
                words: vec!["sh".into(), "-c".into(), script],
                environment: Vec::new(),
                stderr: directory.join("stderr"),
                deadline: Duration::from_secs(60),
            },
            wiped: vec![destination],
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

const PLAN: Plan = Plan {
    warmup: 1,
    iterations: 2,
};

#[test]
fn everybody_takes_turns_and_each_round_begins_with_another_one() {
    let place = place();
    let contestants = [place.contestant("a", ""), place.contestant("b", "")];
    let never = AtomicBool::new(false);
    let mut seen = Vec::new();
    let cells = rounds(&contestants, PLAN, &never, &mut |round, cells| {
        seen.push((round, cells[0].samples().len()));
    });
    assert_eq!(place.log(), ["a", "b", "b", "a", "a", "b"]);
    assert!(
        cells.iter().all(|cell| cell.samples().len() == 2),
        "{cells:?}"
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
    let contestants = [place.contestant("a", ""), place.contestant("b", &fails)];
    let cells = rounds(&contestants, PLAN, &AtomicBool::new(false), &mut |_, _| {});
    assert_eq!(cells[0].samples().len(), 2);
    assert!(matches!(&cells[1], Cell::Void(why) if why.contains("exit status")));
    assert_eq!(place.log().iter().filter(|name| *name == "b").count(), 2);
}

#[test]
fn a_wrong_result_voids_what_was_measured_before() {
    let place = place();
    let mut contestant = place.contestant("a", "");
    let checks = std::cell::Cell::new(0);
    contestant.check = Box::new(|| {
        checks.set(checks.get() + 1);
        match checks.get() {
            3 => Err(BenchError::Result("a path is missing".into())),
            _ => Ok(()),
        }
    });
    let cells = rounds(&[contestant], PLAN, &AtomicBool::new(false), &mut |_, _| {});
    assert!(matches!(&cells[0], Cell::Void(why) if why.contains("a path is missing")));
}

#[test]
fn a_stop_keeps_what_was_measured() {
    let place = place();
    let stop = AtomicBool::new(false);
    let contestants = [place.contestant("a", "")];
    let plan = Plan {
        warmup: 0,
        iterations: 100,
    };
    let cells = rounds(&contestants, plan, &stop, &mut |round, _| {
        stop.store(round == 3, Ordering::Relaxed);
    });
    assert_eq!(cells[0].samples().len(), 3);
    assert_eq!(place.log().len(), 3);
}
