//! `floe bench copy`: times programs that copy a closure.
//!
//! 1. Parse the variants and the scenarios.
//! 2. Query the closure at its source, so that results can be checked.
//! 3. For each scenario, run the variants in turn, each with an empty store and an empty home.
//! 4. Print the results as a table, and write them to the requested files.

pub(crate) mod args;
mod closure;
pub(crate) mod page;
mod perf;
mod scenario;
mod variant;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use floe_bench::{Measurement, Repetitions, Report, Row, Unit, machine, rounds};
use floe_store::WrittenFile;
use floe_transfer::{Cancel, ErrorKind};
use serde_json::json;

use crate::display::eprint_line;
use crate::exit::{AlreadyReported, UsageError};
use crate::signals;
use crate::stdout::print;
use args::BenchCopyArgs;
use closure::Closure;
use scenario::ScenarioRun;
use variant::VariantSpec;

pub(crate) fn run(args: &BenchCopyArgs) -> anyhow::Result<()> {
    if args.iters == 0 {
        bail!(UsageError(
            "cannot use --iters 0: it would measure nothing".into()
        ));
    }
    let variants = variant::parse(&args.variant, args.trusted_public_keys.as_deref())?;
    let scenarios = args.scenario.iter().map(|text| scenario::parse(text));
    let scenarios = scenarios.collect::<Result<Vec<_>, _>>()?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let mut report = Report {
        title: "floe bench copy".into(),
        machine: machine::machine(),
        notes: notes(args, &variants),
        rows: Vec::new(),
        interrupted: false,
    };
    for scenario in &scenarios {
        let closure = Closure::query(&scenario.from, &args.path, &cancel)?;
        let run = ScenarioRun::create(scenario, args, closure)?;
        measure(args, &run, (&variants, &cancel), &mut report)?;
        if cancel.is_raised() {
            break;
        }
        if let Some(directory) = &args.perf {
            perf::profile(directory, &run, (&variants, &cancel), &mut report)?;
        }
    }
    report.interrupted = cancel.is_raised();
    publish(args, &report)?;
    print(report.table().trim_end())?;
    if report.interrupted {
        eprint_line("floe: interrupted; kept the measurements so far");
        bail!(AlreadyReported::from(ErrorKind::Interrupted));
    }
    if report.is_complete() {
        Ok(())
    } else {
        bail!(AlreadyReported::from(ErrorKind::Failed))
    }
}

/// Returns the remarks that readers of the results need.
fn notes(args: &BenchCopyArgs, variants: &[VariantSpec]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "{} runs of each variant after {} for warming up, in turns. Each run has an empty \
             store and an empty home, and its result is checked.",
            args.iters, args.warmup
        ),
        format!(
            "Ratios are ratios of means to {}, with 95 % intervals; p is from Welch's t-test.",
            variants.first().map_or("", |variant| &variant.name)
        ),
        if variants.iter().all(|variant| variant.checks_signatures()) {
            "Signatures: all variants check them.".into()
        } else {
            "Signatures: no variant checks them.".into()
        },
    ];
    notes.extend(variants.iter().map(|variant| {
        let version = variant.version();
        let version = version.map_or_else(String::new, |version| format!(" ({version})"));
        format!("{}: `{}`{version}", variant.name, variant.template.text())
    }));
    notes
}

/// Measures one row of the report. The row is complete after each round, so an interrupt keeps it.
fn measure(
    args: &BenchCopyArgs,
    run: &ScenarioRun<'_>,
    (variants, cancel): (&[VariantSpec], &Cancel),
    report: &mut Report,
) -> anyhow::Result<()> {
    let deadline = Duration::from_secs(args.timeout);
    let variant = |variant| run.timed_variant(variant, deadline);
    let timed_variants: Vec<_> = variants.iter().map(variant).collect();
    let plan = Repetitions {
        warmup: args.warmup,
        iterations: args.iters,
    };
    let named = |measurements: &[Measurement]| -> Vec<(String, Measurement)> {
        let names = variants.iter().map(|variant| variant.name.clone());
        names.zip(measurements.iter().cloned()).collect()
    };
    report.rows.push(Row {
        name: run.name(),
        unit: Unit::Run,
        facts: json!({
            "from": run.scenario.from,
            "fileSystem": run.file_system.describe(),
            "closurePaths": run.closure.narinfos.len(),
            "closureBytes": run.closure.nar_bytes(),
        }),
        measurements: named(&vec![Measurement::Ran(Vec::new()); variants.len()]),
    });
    let at = report.rows.len() - 1;
    let mut failure = None;
    let mut reported = BTreeSet::new();
    let stop = cancel.flag();
    let mut on_round = |round: usize, measurements: &[Measurement]| {
        report.rows[at].measurements = named(measurements);
        eprint_line(progress(&report.rows[at], round, plan, &mut reported));
        // Written after each round, so that a killed process leaves its results.
        failure = publish(args, report).err();
        if failure.is_some() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let measurements = rounds(&timed_variants, plan, &stop, &mut on_round);
    report.rows[at].measurements = named(&measurements);
    failure.map_or(Ok(()), Err)
}

/// Returns a line about the last round. `reported` holds the variants whose failure was shown.
fn progress(row: &Row, round: usize, plan: Repetitions, reported: &mut BTreeSet<String>) -> String {
    let last = row.measurements.iter().map(|(name, cell)| match cell {
        Measurement::Failed(why) if reported.insert(name.clone()) => {
            format!("{name} failed: {why}")
        }
        Measurement::Failed(_) => format!("{name} failed before"),
        Measurement::Ran(samples) => match samples.last() {
            Some(sample) => format!("{name} {:.3} s", sample.seconds),
            None => format!("{name} warm"),
        },
    });
    let last = Vec::from_iter(last).join(", ");
    let total = plan.warmup + plan.iterations;
    format!("{}: round {round} of {total}: {last}", row.name)
}

/// Writes the requested files.
fn publish(args: &BenchCopyArgs, report: &Report) -> anyhow::Result<()> {
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        write(file, &(text + "\n"))?;
    }
    if let Some(file) = &args.markdown {
        write(file, &report.markdown())?;
    }
    if let Some(file) = &args.svg {
        write(file, &report.svg())?;
    }
    Ok(())
}

/// Replaces a file atomically, so that an interrupt does not leave half of it.
fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    let written = || -> anyhow::Result<()> {
        let (new, path) = WrittenFile::create_temporary(directory, ".floe-report-", "")?;
        new.complete(|new| {
            new.write_all(text.as_bytes())?;
            new.set_mode(0o644)
        })?;
        path.persist(file)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {}", file.display()))
}
