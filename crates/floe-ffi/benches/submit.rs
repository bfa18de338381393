//! The submits per second of floe-queue, of other queues, and of libfloe as a whole.
//!
//! 1. K threads wait at a gate, then each submits the same number of requests.
//! 2. The time runs from the gate until the last thread has submitted. The receiver takes requests
//!    meanwhile, but the time does not include its end.
//! 3. Every request must arrive exactly once, or the run fails.
//! 4. The variants take turns in each round. The result is the median of the rounds.
//!
//! Gate: with 2 or more threads, floe-queue is at least 2.0 times as fast as the fastest unbounded
//! channel.

#![allow(unsafe_code, reason = "the benchmark calls libfloe like C")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark prints its results"
)]

#[path = "submit/library.rs"]
mod library;
#[path = "submit/one_run.rs"]
mod one_run;
#[path = "harness/options.rs"]
mod options;
#[path = "harness/table.rs"]
mod table;
#[path = "submit/variants.rs"]
mod variants;

use std::process::ExitCode;

use options::Options;
use variants::Variant;

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
    for (payload, mut variants) in [(16, variants::all::<2>()), (64, variants::all::<8>())] {
        variants.retain(|variant| variant.name.contains(&options.only));
        println!(
            "\n{payload} bytes a request, millions of submits a second, median of {}:\n",
            options.iters
        );
        let (rates, busy) = measure(&variants, &options);
        print_rates(&variants, &rates, &busy, &options);
        failures.extend(check(payload, &variants, &rates, &options));
        json.extend(samples(payload, &variants, &rates, &options));
    }
    if let Some(file) = &options.json {
        let text = format!("[\n{}\n]\n", json.join(",\n"));
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

/// Submits per second: by number of threads, then by variant, then by round.
type Rates = Vec<Vec<Vec<f64>>>;

/// Returns the rates, and how often each variant was busy.
fn measure(variants: &[Variant], options: &Options) -> (Rates, Vec<u64>) {
    let mut busy = vec![0; variants.len()];
    let of_threads = |&threads: &usize| {
        let each = options.per_thread(threads);
        let mut rates = vec![Vec::new(); variants.len()];
        for round in 0..=options.iters {
            for (number, variant) in variants.iter().enumerate() {
                let run = (variant.run)(threads, each);
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

fn print_rates(variants: &[Variant], rates: &Rates, busy: &[u64], options: &Options) {
    let mut head = vec!["variant".to_owned()];
    head.extend(
        options
            .threads
            .iter()
            .map(|threads| format!("{threads} threads")),
    );
    head.extend(["most / 1".to_owned(), "busy".to_owned()]);
    let mut rows = Vec::new();
    for (number, variant) in variants.iter().enumerate() {
        let medians: Vec<f64> = rates.iter().map(|of| table::median(&of[number])).collect();
        let mut row = vec![variant.name.to_owned()];
        row.extend(medians.iter().map(|rate| format!("{:.1}", rate / 1e6)));
        row.push(format!("{:.2}", medians[medians.len() - 1] / medians[0]));
        row.push(busy[number].to_string());
        rows.push(row);
    }
    let mut row = vec!["floe-queue / best channel".to_owned()];
    row.extend(rates.iter().map(|of| format!("{:.2}", lead(variants, of))));
    row.extend([String::new(), String::new()]);
    rows.push(row);
    table::print(&head, &rows);
}

/// Returns the rate of floe-queue divided by the rate of the fastest unbounded channel.
fn lead(variants: &[Variant], rates: &[Vec<f64>]) -> f64 {
    let of = |wanted: &dyn Fn(&Variant) -> bool| {
        let medians = variants
            .iter()
            .zip(rates)
            .filter(|(variant, _)| wanted(variant));
        medians
            .map(|(_, rates)| table::median(rates))
            .fold(0.0, f64::max)
    };
    of(&|variant| variant.name == variants::FLOE_QUEUE) / of(&|variant| variant.is_channel)
}

fn check(payload: usize, variants: &[Variant], rates: &Rates, options: &Options) -> Vec<String> {
    let mut failures = Vec::new();
    if !options.gate {
        return failures;
    }
    for (&threads, rates) in options.threads.iter().zip(rates) {
        let lead = lead(variants, rates);
        if threads >= 2 && lead < LEAD_MIN {
            failures.push(format!(
                "{payload} bytes, {threads} threads: floe-queue is {lead:.2} times as fast as the \
                 best channel; the minimum is {LEAD_MIN}"
            ));
        }
    }
    failures
}

fn samples(payload: usize, variants: &[Variant], rates: &Rates, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    for (threads, rates) in options.threads.iter().zip(rates) {
        for (variant, rates) in variants.iter().zip(rates) {
            let name = variant.name;
            lines.push(format!(
                "  {{\"payload\": {payload}, \"threads\": {threads}, \"variant\": \"{name}\", \
                 \"submitsPerSecond\": {rates:?}}}"
            ));
        }
    }
    lines
}

/// Measured from 2.1 to 4.1 on the machine of bench/results/submit.md.
const LEAD_MIN: f64 = 2.0;
