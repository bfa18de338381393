//! `cargo xtask bench submit|codec|call`: the benchmarks of libfloe, which are cargo's own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::statistics::median;
use floe_bench::{Measurement, Report, Row, Sample, Unit, machine};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use xtask::workspace;

use crate::aims::FLOE;
use crate::args::LibfloeArgs;
use crate::before_after::BEFORE;
use crate::outcome::Outcome;
use crate::results;
use crate::schedule::RowTime;

/// Runs one of the benchmarks, or compares it with that of another checkout.
pub(crate) fn run(root: &Path, name: &'static str, args: &LibfloeArgs) -> Result<Outcome> {
    if let Some(before) = &args.before {
        return compare(root, name, (before, args));
    }
    let mut failure = None;
    let row = args.schedule.row(name, name, |time| {
        let measured = measure(root, name, (args, time));
        measured.unwrap_or_else(|error| {
            failure = Some(error);
            row(name, Measurement::Ran(Vec::new()), Value::Null)
        })
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let Some(row) = row else {
        return Ok(Outcome::Passed);
    };
    if args.record {
        let text = row.facts["document"].as_str().unwrap_or_default();
        results::write(&root.join(format!("bench/results/{name}.md")), text)?;
    }
    Ok(if row.facts["hasPassed"] == true {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// The whole benchmark as a row: the time it took, and in its facts the document.
fn row(name: &str, measurement: Measurement, facts: Value) -> Row {
    Row {
        name: name.into(),
        unit: Unit::Run,
        facts,
        measurements: vec![(FLOE.into(), measurement)],
    }
}

fn measure(root: &Path, name: &str, (args, time): (&LibfloeArgs, &RowTime)) -> Result<Row> {
    // Describe the machine before the benchmark raises its load.
    let machine = machine::describe(&machine::machine());
    let mut command = cargo_bench(root, name, args);
    if let Some(file) = &args.json {
        command.arg("--json").arg(file);
    }
    let cannot = || format!("cannot run cargo bench --bench {name}");
    let began = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(cannot)?;
    let stdout = child.stdout.take().with_context(cannot)?;
    let (text, status) = thread::scope(|scope| {
        let text = scope.spawn(|| print_lines(stdout));
        let status = wait(&mut child, time);
        (text.join().unwrap_or_default(), status)
    });
    let status = status.with_context(cannot)?;
    if time.has_ended() {
        let none = Measurement::Ran(Vec::new());
        return Ok(row(name, none, json!({})));
    }
    let sample = Sample::timed(began.elapsed().as_secs_f64(), 1.0);
    let facts = json!({
        "document": format!("# libfloe: {name}\n\n{machine}\n{text}"),
        "hasPassed": status.success(),
    });
    Ok(row(name, Measurement::Ran(vec![sample]), facts))
}

/// Prints the lines of a benchmark, and returns them.
fn print_lines(stdout: ChildStdout) -> String {
    let mut text = String::new();
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        println!("{line}");
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Waits for a process group, and ends it when the time is over.
fn wait(child: &mut Child, time: &RowTime) -> std::io::Result<ExitStatus> {
    let group = Pid::from_raw(child.id().cast_signed());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if time.has_ended()
            && let Some(group) = group
        {
            let _: rustix::io::Result<()> = kill_process_group(group, Signal::KILL);
            return child.wait();
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Short beside the minutes of a benchmark, and no load.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the package that holds a benchmark. Older checkouts have all of them in floe-ffi.
fn package_of(checkout: &Path, name: &str) -> &'static str {
    let manifest = fs::read_to_string(checkout.join("crates/floe-ffi/Cargo.toml"));
    if manifest.is_ok_and(|text| text.contains(&format!("name = \"{name}\""))) {
        "floe-ffi"
    } else {
        "floe-messages"
    }
}

/// `cargo bench` in a checkout, with the options that are passed on.
fn cargo_bench(checkout: &Path, name: &str, args: &LibfloeArgs) -> Command {
    let package = package_of(checkout, name);
    let bench = ["bench", "--package", package, "--bench", name, "--"];
    let mut command = workspace::cargo(checkout, &bench);
    let mut option = |option: &str, value: Option<String>| {
        if let Some(value) = value {
            command.args([option, &value]);
        }
    };
    option("--threads", args.threads.clone());
    option("--per-thread", args.per_thread.map(|it| it.to_string()));
    option("--iters", args.iters.map(|it| it.to_string()));
    option("--only", args.only.clone());
    if args.include_1mib {
        command.arg("--include-1mib");
    }
    if args.no_gate {
        command.arg("--no-gate");
    }
    command
}

/// Seconds per call by row, from one run of a benchmark.
type Costs = BTreeMap<String, f64>;

/// Lets the benchmarks of two checkouts take turns, and compares the rows that both have.
fn compare(root: &Path, name: &str, (before, args): (&Path, &LibfloeArgs)) -> Result<Outcome> {
    let machine = machine::machine();
    let before = before.canonicalize().context("cannot find the checkout")?;
    let directory = workspace::target_directory(root).join("bench");
    let _lock = crate::programs::lock(&directory)?;
    let checkouts = [(BEFORE, before.as_path()), (FLOE, root)];
    let mut runs: [Vec<Costs>; 2] = Default::default();
    for round in 0..args.rounds.get() {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for step in 0..checkouts.len() {
            let index = (step + round) % checkouts.len();
            let (variant, checkout) = checkouts[index];
            let file = directory.join(format!("{name}.json"));
            let costs = run_once(checkout, name, (&file, args));
            let mut costs = costs.with_context(|| format!("{variant}, {name}"))?;
            if index == 0 {
                costs = renamed(costs, &args.renamed);
            }
            runs[index].push(costs);
        }
    }
    let [before, now] = runs;
    let (rows, skipped) = rows(&before, &now);
    for row in &skipped {
        println!("SKIPPED: {row} is not in both checkouts");
    }
    let report = Report {
        title: format!("libfloe: {name}, two builds"),
        machine,
        notes: vec![format!(
            "{} runs of each build, in turns; the cost of a run is its median.",
            args.rounds
        )],
        rows,
        interrupted: false,
    };
    results::publish_comparison(&report, None)
}

/// One run of a benchmark, without its own output. Its result goes through a file.
fn run_once(checkout: &Path, name: &str, (file, args): (&PathBuf, &LibfloeArgs)) -> Result<Costs> {
    let _ = fs::remove_file(file);
    let mut command = cargo_bench(checkout, name, args);
    if !args.no_gate {
        command.arg("--no-gate");
    }
    if args.iters.is_none() {
        command.args(["--iters", "1"]);
    }
    let status = command
        .arg("--json")
        .arg(file)
        // Two checkouts must not share their output.
        .env("CARGO_TARGET_DIR", checkout.join("target"))
        .stdout(Stdio::null())
        .status()
        .context("cannot run cargo bench")?;
    ensure!(status.success(), "cargo bench: {status}");
    let text = fs::read_to_string(file).context("cannot read the samples")?;
    parse(&text)
}

/// Reads the JSON of a benchmark: objects with samples, and with fields that identify the row.
fn parse(text: &str) -> Result<Costs> {
    let objects: Vec<serde_json::Map<String, Value>> =
        serde_json::from_str(text).context("the samples are not an array of objects")?;
    let mut samples: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for object in &objects {
        let Some((field, values, seconds)) = MEASURED.iter().find_map(|(field, seconds)| {
            let values = object.get(*field)?;
            Some((field, values, seconds))
        }) else {
            bail!("no samples in {object:?}");
        };
        let single = [values.clone()];
        let values = values.as_array().map_or(&single[..], Vec::as_slice);
        let costs: Option<Vec<f64>> = values.iter().map(|it| it.as_f64().map(seconds)).collect();
        let costs = costs.with_context(|| format!("{field} is not a number"))?;
        samples.entry(row_name(object)).or_default().extend(costs);
    }
    let medians = samples
        .into_iter()
        .filter_map(|(row, costs)| Some((row, median(&costs)?)));
    Ok(medians.collect())
}

/// A conversion to seconds per call.
type ToSeconds = fn(f64) -> f64;

/// The fields with samples, and their conversions.
const MEASURED: [(&str, ToSeconds); 3] = [
    ("submitsPerSecond", |rate| 1.0 / rate),
    ("messagesPerSecond", |rate| 1.0 / rate),
    ("ns", |nanoseconds| nanoseconds / 1e9),
];

/// Fields that neither identify a row nor are compared.
const IGNORED: [&str; 4] = ["p50Us", "p99Us", "busy", "cbor_bytes"];

/// The name of a row: its texts, and then its numbers with their names.
fn row_name(object: &serde_json::Map<String, Value>) -> String {
    let is_key = |field: &&String| {
        let field = field.as_str();
        !IGNORED.contains(&field) && !MEASURED.iter().any(|(name, _)| *name == field)
    };
    let (mut texts, mut numbers) = (Vec::new(), Vec::new());
    for field in object.keys().filter(is_key) {
        match object[field].as_str() {
            Some(text) => texts.push(text.to_owned()),
            None => numbers.push(format!("{field} {}", object[field])),
        }
    }
    texts.append(&mut numbers);
    texts.join(", ")
}

/// The rows with other names: whole parts between commas are replaced.
fn renamed(costs: Costs, names: &[(String, String)]) -> Costs {
    let rename = |row: String| {
        let parts = row.split(", ").map(|part| {
            let found = names.iter().find(|(old, _)| old == part);
            found.map_or(part, |(_, new)| new)
        });
        parts.collect::<Vec<_>>().join(", ")
    };
    costs
        .into_iter()
        .map(|(row, cost)| (rename(row), cost))
        .collect()
}

/// The rows that are in every run of both, and the names of the others.
fn rows(before: &[Costs], now: &[Costs]) -> (Vec<Row>, Vec<String>) {
    let measurement = |runs: &[Costs], row: &str| {
        let costs: Option<Vec<f64>> = runs.iter().map(|run| run.get(row).copied()).collect();
        let samples = costs?.into_iter().map(|cost| Sample::timed(cost, 1.0));
        Some(Measurement::Ran(samples.collect()))
    };
    let mut names: Vec<&String> = before.iter().chain(now).flat_map(Costs::keys).collect();
    names.sort();
    names.dedup();
    let (mut rows, mut skipped) = (Vec::new(), Vec::new());
    for name in names {
        match (measurement(before, name), measurement(now, name)) {
            (Some(before), Some(now)) => rows.push(Row {
                name: name.clone(),
                unit: Unit::Call,
                facts: json!({}),
                measurements: vec![(BEFORE.into(), before), (FLOE.into(), now)],
            }),
            _ => skipped.push(name.clone()),
        }
    }
    (rows, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_every_benchmark_become_costs() {
        let submit = r#"[{"payload": 16, "threads": 2, "variant": "queue",
            "submitsPerSecond": [2e6, 4e6, 5e6]}]"#;
        let codec = r#"[{"shape": "Echo", "codec": "flat", "cbor_bytes": 40, "ns": [50.0]}]"#;
        let call = r#"[{"mode": "sync", "threads": 1, "messagesPerSecond": 1e6, "p50Us": 2.0},
            {"mode": "sync", "threads": 1, "messagesPerSecond": 2e6, "p50Us": 1.0}]"#;
        for (text, row, cost) in [
            (submit, "queue, payload 16, threads 2", 0.25e-6),
            (codec, "flat, Echo", 50e-9),
            (call, "sync, threads 1", 0.75e-6),
        ] {
            let costs = parse(text).unwrap();
            assert_eq!(costs.len(), 1, "{costs:?}");
            assert!((costs[row] / cost - 1.0).abs() < 1e-9, "{costs:?}");
        }
        assert!(parse(r#"[{"shape": "Echo"}]"#).is_err());
    }

    #[test]
    fn rows_of_one_checkout_only_are_skipped() {
        let costs = |names: &[&str]| -> Costs {
            names.iter().map(|name| ((*name).to_owned(), 1.0)).collect()
        };
        let before = renamed(
            costs(&["old queue, payload 16", "old"]),
            &[("old queue".into(), "queue".into())],
        );
        let now = costs(&["queue, payload 16", "new"]);
        let (rows, skipped) = rows(&[before], &[now]);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].name, "queue, payload 16");
        assert_eq!(skipped, ["new", "old"]);
    }
}
