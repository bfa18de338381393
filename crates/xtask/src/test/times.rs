//! The times of the stages and of the slowest tests.

use std::fmt::Write as _;
use std::time::Duration;

/// A test that has ended, with its time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimedTest {
    pub(super) name: String,
    pub(super) time: Duration,
}

/// The times of a run.
#[derive(Debug, Default)]
pub(super) struct Times {
    stages: Vec<(String, Duration)>,
    tests: Vec<TimedTest>,
}

impl Times {
    pub(super) fn add_stage(&mut self, stage: &str, time: Duration) {
        self.stages.push((stage.to_owned(), time));
    }

    pub(super) fn add_tests(&mut self, tests: Vec<TimedTest>) {
        self.tests.extend(tests);
    }

    /// Returns the stages in their order and the slowest tests, as a document.
    pub(super) fn document(&self) -> String {
        let mut text = String::from(INTRODUCTION);
        text.push_str("\n| stage | seconds |\n|---|---:|\n");
        for (stage, time) in &self.stages {
            let _ = writeln!(text, "| {stage} | {:.0} |", time.as_secs_f64());
        }
        let total: Duration = self.stages.iter().map(|(_, time)| *time).sum();
        let _ = writeln!(text, "| all | {:.0} |", total.as_secs_f64());
        let mut tests: Vec<&TimedTest> = self.tests.iter().collect();
        tests.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.name.cmp(&b.name)));
        let sum: Duration = tests.iter().map(|test| test.time).sum();
        let (count, sum) = (tests.len(), sum.as_secs_f64());
        let _ = writeln!(
            text,
            "\n{count} tests take {sum:.0} seconds one after another.\n"
        );
        text.push_str("| slowest tests | seconds |\n|---|---:|\n");
        for test in tests.iter().take(SLOWEST) {
            let _ = writeln!(text, "| `{}` | {:.1} |", test.name, test.time.as_secs_f64());
        }
        text
    }
}

/// Reads the line of a test that has ended, such as `test a::b ... ok <1.234s>`. Returns its name,
/// its result and its time.
pub(super) fn ended_test(line: &str) -> Option<(&str, &str, Option<Duration>)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (result, time) = match result.split_once(" <") {
        Some((result, time)) => (result, time.strip_suffix("s>")),
        None => (result, None),
    };
    let seconds = time.and_then(|time| time.parse::<f64>().ok());
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Some((name, result, time))
}

const INTRODUCTION: &str = "\
# Times of the tests

`cargo xtask test --record` writes this file: the times of a run from an empty target directory on
2 cores. A test waits for others that want the machine for themselves, and its time includes this
wait.
";

/// How many tests the table has.
const SLOWEST: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ended_tests_have_results_and_times() {
        let seconds = Duration::from_secs_f64;
        for (line, expected) in [
            (
                "test a::b ... ok <1.500s>",
                Some(("a::b", "ok", Some(seconds(1.5)))),
            ),
            (
                "test c ... FAILED <0.001s>",
                Some(("c", "FAILED", Some(seconds(0.001)))),
            ),
            ("test d ... ignored", Some(("d", "ignored", None))),
            (
                "test src/x.rs - y (line 3) ... ok",
                Some(("src/x.rs - y (line 3)", "ok", None)),
            ),
            ("test result: ok. 1 passed", None),
            ("running 1 test", None),
        ] {
            assert_eq!(ended_test(line), expected, "{line}");
        }
    }

    #[test]
    fn document_lists_stages_and_slowest_tests_first() {
        let mut times = Times::default();
        times.add_stage("clippy", Duration::from_secs(90));
        times.add_stage("test", Duration::from_secs(30));
        let timed = |number: u64| TimedTest {
            name: format!("t{number}"),
            time: Duration::from_secs(number),
        };
        times.add_tests((1..=30).map(timed).collect());
        let text = times.document();
        assert!(text.contains("| clippy | 90 |\n| test | 30 |\n| all | 120 |\n"));
        assert!(text.contains("30 tests take 465 seconds"));
        assert!(text.contains("| `t30` | 30.0 |\n| `t29` | 29.0 |"));
        assert!(text.contains("`t11`") && !text.contains("`t10`"));
    }
}
