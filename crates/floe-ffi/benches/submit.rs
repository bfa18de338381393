//! How many requests threads can hand in: the ingress beside other queues, and libfloe as a whole.
//!
//! 1. K threads wait at a gate and then submit the same number of requests each;
//! 2. the time runs from the gate to the last thread's return: the receiver works meanwhile, but
//!    that it is done is not waited for;
//! 3. then every request has to have been taken, exactly once, or the run fails;
//! 4. designs take turns, round by round; the median of their rounds counts.
//!
//! Gates: lanes at least 2.0 times as fast as the best unbounded channel from 2 threads on; and
//! that of the design's seed, for its own design (`shards`): most threads at least 1.5 times as
//! fast as one. A fast single thread fails that one, so for the others it is only shown.

#![allow(unsafe_code, reason = "libfloe is called as C calls it")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints what it has measured"
)]

#[path = "submit/designs.rs"]
mod designs;
#[path = "submit/library.rs"]
mod library;
#[path = "submit/one_run.rs"]
mod one_run;
#[path = "harness/options.rs"]
mod options;
#[path = "harness/table.rs"]
mod table;

use std::process::ExitCode;

use designs::Design;
use options::Options;

fn main() -> ExitCode {
    let options = match Options::read("SUBMIT", &[1, 2, 4, 8]) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let mut failures = Vec::new();
    let mut json = Vec::new();
    for (payload, mut designs) in [(16, designs::all::<2>()), (64, designs::all::<8>())] {
        designs.retain(|design| design.name.contains(&options.only));
        println!(
            "\n{payload} bytes a request, millions of submits a second, median of {}:\n",
            options.iters
        );
        let (rates, busy) = measure(&designs, &options);
        print_rates(&designs, &rates, &busy, &options);
        failures.extend(check(payload, &designs, &rates, &options));
        json.extend(samples(payload, &designs, &rates, &options));
    }
    if let Some(file) = &options.json {
        let text = format!("[\n{}\n]\n", json.join(",\n"));
        if let Err(error) = std::fs::write(file, text) {
            failures.push(format!("writing {}: {error}", file.display()));
        }
    }
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    match failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Submits a second: by number of threads, then by design, then by round.
type Rates = Vec<Vec<Vec<f64>>>;

/// The rates, and how often each design said that it was busy.
fn measure(designs: &[Design], options: &Options) -> (Rates, Vec<u64>) {
    let mut busy = vec![0; designs.len()];
    let of_threads = |&threads: &usize| {
        let each = options.per_thread(threads);
        let mut rates = vec![Vec::new(); designs.len()];
        for round in 0..=options.iters {
            for (number, design) in designs.iter().enumerate() {
                let run = (design.run)(threads, each);
                busy[number] += run.busy;
                let rates = &mut rates[number];
                // The first round warms up.
                if round > 0 {
                    rates.push((threads as u64 * each) as f64 / run.time.as_secs_f64());
                }
            }
        }
        rates
    };
    let rates = options.threads.iter().map(of_threads).collect();
    (rates, busy)
}

fn print_rates(designs: &[Design], rates: &Rates, busy: &[u64], options: &Options) {
    let mut head = vec!["design".to_owned()];
    head.extend(
        options
            .threads
            .iter()
            .map(|threads| format!("{threads} threads")),
    );
    head.extend(["most / 1".to_owned(), "busy".to_owned()]);
    let mut rows = Vec::new();
    for (number, design) in designs.iter().enumerate() {
        let medians: Vec<f64> = rates.iter().map(|of| table::median(&of[number])).collect();
        let mut row = vec![design.name.to_owned()];
        row.extend(medians.iter().map(|rate| format!("{:.1}", rate / 1e6)));
        row.push(format!("{:.2}", medians[medians.len() - 1] / medians[0]));
        row.push(busy[number].to_string());
        rows.push(row);
    }
    let mut row = vec!["lanes / best channel".to_owned()];
    row.extend(rates.iter().map(|of| format!("{:.2}", lead(designs, of))));
    row.extend([String::new(), String::new()]);
    rows.push(row);
    table::print(&head, &rows);
}

/// How many times as fast lanes are as the best unbounded channel.
fn lead(designs: &[Design], rates: &[Vec<f64>]) -> f64 {
    let of = |wanted: &dyn Fn(&Design) -> bool| {
        let medians = designs
            .iter()
            .zip(rates)
            .filter(|(design, _)| wanted(design));
        medians
            .map(|(_, rates)| table::median(rates))
            .fold(0.0, f64::max)
    };
    of(&|design| design.name == designs::LANES) / of(&|design| design.is_channel)
}

fn check(payload: usize, designs: &[Design], rates: &Rates, options: &Options) -> Vec<String> {
    let mut failures = Vec::new();
    if !options.gate {
        return failures;
    }
    for (&threads, rates) in options.threads.iter().zip(rates) {
        let lead = lead(designs, rates);
        if threads >= 2 && lead < LEAD_MIN {
            failures.push(format!(
                "{payload} bytes, {threads} threads: lanes have {lead:.2} of the best channel, \
                 and should have {LEAD_MIN}"
            ));
        }
    }
    let shards = designs
        .iter()
        .position(|design| design.name == designs::SHARDS);
    if let (Some(shards), Some(first), Some(last)) = (shards, rates.first(), rates.last()) {
        let scaling = table::median(&last[shards]) / table::median(&first[shards]);
        if options.scaling_gate && options.threads.len() > 1 && scaling < SCALING_MIN {
            failures.push(format!(
                "{payload} bytes: shards have {scaling:.2} of one thread with the most threads, \
                 and should have {SCALING_MIN} (FLOE_SCALING_GATE=0 only reports)"
            ));
        }
    }
    failures
}

fn samples(payload: usize, designs: &[Design], rates: &Rates, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    for (threads, rates) in options.threads.iter().zip(rates) {
        for (design, rates) in designs.iter().zip(rates) {
            let name = design.name;
            lines.push(format!(
                "  {{\"payload\": {payload}, \"threads\": {threads}, \"design\": \"{name}\", \
                 \"submitsPerSecond\": {rates:?}}}"
            ));
        }
    }
    lines
}

/// Measured here from 2.1 to 4.1.
const LEAD_MIN: f64 = 2.0;

/// The gate of the design's seed.
const SCALING_MIN: f64 = 1.5;
