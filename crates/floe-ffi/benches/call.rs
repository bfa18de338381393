//! The speed of whole calls from a C++ host: from a request struct to its reply struct.
//!
//! 1. `call/call.cpp` is compiled against the shared library, like a host. It measures the times,
//!    and checks each reply and each event.
//! 2. For each case, K threads wait at a gate, then each makes the same number of calls. The time
//!    runs from the gate until the last reply or event. Single times run from before the request
//!    is encoded until its reply is decoded.
//! 3. Each round is a process of its own, and begins with another case. The result is the median of
//!    the rounds.
//!
//! Gates are ratios to nim-ffi, which was measured on another day: see `call/nim_ffi.rs`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its results"
)]

#[path = "call/nim_ffi.rs"]
mod nim_ffi;
#[path = "harness/options.rs"]
#[expect(dead_code, reason = "the benchmark `submit` uses more options")]
mod options;
#[path = "call/program.rs"]
mod program;
#[path = "harness/table.rs"]
mod table;

use std::process::ExitCode;

use nim_ffi::{Aim, CASES, Case};
use options::Options;
use program::{Program, Row};

fn main() -> ExitCode {
    let options = match read_options() {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let samples = match Program::build().and_then(|program| measure(&program, &options)) {
        Ok(samples) => samples,
        Err(text) => {
            eprintln!("FAILED: {text}");
            return ExitCode::FAILURE;
        }
    };
    println!(
        "\ncalls through floe.hpp, {} requests a thread, median of {}:\n",
        each(&options),
        options.iters
    );
    let mut failures = Vec::new();
    let mut rows = Vec::new();
    for case in &CASES {
        for &threads in &options.threads {
            let row = median(case, threads, &samples);
            failures.extend(check(case, &row).filter(|_| options.gate));
            rows.push(cells(case, &row));
        }
    }
    table::print(&HEAD.map(str::to_owned), &rows);
    println!("\n{ORIGIN}");
    if let Some(file) = &options.json {
        let lines: Vec<String> = samples.iter().map(json).collect();
        let text = format!("[\n{}\n]\n", lines.join(",\n"));
        if let Err(error) = std::fs::write(file, text) {
            failures.push(format!("cannot write {}: {error}", file.display()));
        }
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn read_options() -> Result<Options, String> {
    let mut options = Options::read("CALL", &nim_ffi::THREADS)?;
    // `Options` does not distinguish its default from an explicit value.
    let is_explicit = std::env::var_os("FLOE_CALL_ITERS").is_some()
        || std::env::args().any(|word| word == "--iters");
    if !is_explicit {
        options.iters = ITERS;
    }
    Ok(options)
}

fn each(options: &Options) -> u64 {
    options.each.unwrap_or(PER_THREAD)
}

/// Returns all rows of all rounds.
fn measure(program: &Program, options: &Options) -> Result<Vec<Row>, String> {
    let mut samples = Vec::new();
    for round in 0..options.iters {
        let mut cases = CASES.each_ref().map(|case| case.name);
        // Rotates the cases, so that rounds begin with different ones.
        cases.rotate_left(round * CASES.len() / options.iters);
        samples.extend(program.run(each(options), &options.threads, &cases)?);
    }
    Ok(samples)
}

fn median(case: &Case, threads: usize, samples: &[Row]) -> Row {
    let of = |value: fn(&Row) -> f64| {
        let rows = samples
            .iter()
            .filter(|row| row.case == case.name && row.threads == threads);
        table::median(&rows.map(value).collect::<Vec<_>>())
    };
    Row {
        case: case.name.to_owned(),
        threads,
        rate: of(|row| row.rate),
        p50: of(|row| row.p50),
        p99: of(|row| row.p99),
        busy: of(|row| row.busy),
    }
}

fn cells(case: &Case, row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".into());
    let (rate, p50) = (case.rate(row.threads), case.p50(row.threads));
    vec![
        row.case.clone(),
        row.threads.to_string(),
        format!("{:.0}", row.rate),
        format!("{:.1}", row.p50),
        format!("{:.1}", row.p99),
        format!("{:.0}", row.busy),
        or_dash(rate.map(|theirs| format!("{theirs:.0}"))),
        or_dash(rate.map(|theirs| format!("{:.2}x", row.rate / theirs))),
        or_dash(p50.map(|theirs| format!("{theirs:.1}"))),
        or_dash(p50.map(|theirs| format!("{:.2}x", theirs / row.p50))),
    ]
}

/// Returns the failure of a case that misses its aim.
fn check(case: &Case, row: &Row) -> Option<String> {
    let (what, ratio, min) = match case.aim {
        Aim::None => return None,
        Aim::Rate(min) => ("as many messages", row.rate / case.rate(row.threads)?, min),
        Aim::P50(min) => ("as short a p50", case.p50(row.threads)? / row.p50, min),
    };
    // NaN, the ratio without samples, misses the aim too.
    let is_met = ratio >= min;
    (!is_met).then(|| {
        format!(
            "{}, {} threads: {ratio:.2} times {what} as nim-ffi; the minimum is {min} \
             (--no-gate only reports)",
            row.case, row.threads
        )
    })
}

fn json(row: &Row) -> String {
    let object = serde_json::json!({
        "case": row.case,
        "threads": row.threads,
        "messagesPerSecond": row.rate,
        "p50Us": row.p50,
        "p99Us": row.p99,
        "busy": row.busy,
    });
    format!("  {object}")
}

const HEAD: [&str; 10] = [
    "case",
    "threads",
    "msg/s",
    "p50 µs",
    "p99 µs",
    "busy",
    "nim-ffi msg/s",
    "faster",
    "nim-ffi p50 µs",
    "shorter",
];

const ORIGIN: &str = "nim-ffi was measured on another day, on a machine of the same kind: its \
                      figures give an orientation and prove nothing.";

/// A tenth of a second for small messages, and two thirds of a second for the longest.
const PER_THREAD: u64 = 2_000;

/// The smallest number whose median survives one bad round.
const ITERS: usize = 3;
