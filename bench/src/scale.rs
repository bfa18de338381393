//! `cargo xtask bench scale`: commands of floe on synthetic stores with many paths, beside those of
//! Nix.

mod checks;
mod commands;
mod rows;
mod serve_start;
mod stage;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, ensure};
use floe_bench::{Measurement, Repetitions, Report, Row, Unit, machine, rounds};
use serde_json::json;
use xtask::workspace;

use crate::aims::{FLOE, JudgedRow};
use crate::args::{MakeStoreArgs, ScaleArgs};
use crate::outcome::Outcome;
use crate::programs;
use crate::results::{self, Results};
use crate::synthetic_store;
use rows::{RowPlan, Task};
use stage::Stage;

/// The name of the recorded results.
pub(crate) const NAME: &str = "scale";

const ROUNDS: usize = 5;

/// Measures the rows that were asked for.
pub(crate) fn run(root: &Path, args: &ScaleArgs) -> Result<Outcome> {
    let mut plans = rows::all(args);
    plans.retain(|plan| args.run.wants(&plan.name));
    ensure!(!plans.is_empty(), "no row matches {:?}", args.run.rows);
    let machine = machine::machine();
    let directory = workspace::target_directory(root).join("bench");
    let _lock = programs::lock(&directory)?;
    let mut stage = Stage::prepare(root, args)?;
    let mut report = Report {
        title: "Stores with many paths: floe beside Nix".into(),
        machine,
        notes: stage.versions(),
        rows: Vec::new(),
        interrupted: false,
    };
    for plan in &plans {
        eprintln!("{}", plan.name);
        let row = measure(&mut stage, plan, args.run.rounds(ROUNDS));
        eprintln!("  {}", JudgedRow::new(&row, plan.aim).describe());
        report.rows.push(row);
    }
    if args.run.before.is_some() {
        return results::publish_comparison(&report, args.run.json.as_deref());
    }
    let results = Results {
        name: NAME,
        report: &report,
        aims: plans.iter().map(|plan| plan.aim).collect(),
        explanation: EXPLANATION,
        appendix: String::new(),
    };
    Ok(if results.publish(root, &args.run)? {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// Makes a synthetic store, for this benchmark or for other experiments.
pub(crate) fn make_store(args: &MakeStoreArgs) -> Result<Outcome> {
    let exists = args.directory.exists();
    ensure!(!exists, "{} exists", args.directory.display());
    synthetic_store::create(&args.directory, args.shape(), args.files)?;
    Ok(Outcome::Passed)
}

fn measure(stage: &mut Stage, plan: &RowPlan, iterations: usize) -> Row {
    let repetitions = Repetitions {
        warmup: 1,
        iterations,
    };
    let measured = stage
        .make_store(plan)
        .and_then(|()| measure_variants(stage, plan, repetitions));
    let failed = |error: anyhow::Error| {
        let reason = Measurement::Failed(format!("{error:#}"));
        vec![(FLOE.to_owned(), reason)]
    };
    Row {
        name: plan.name.clone(),
        unit: Unit::Run,
        facts: json!({}),
        measurements: measured.unwrap_or_else(failed),
    }
}

fn measure_variants(
    stage: &Stage,
    plan: &RowPlan,
    repetitions: Repetitions,
) -> Result<Vec<(String, Measurement)>> {
    if plan.task == Task::ServeStart {
        return serve_start::measure(stage, plan, repetitions);
    }
    let variants = commands::variants(stage, plan).context("cannot prepare the row")?;
    let never = AtomicBool::new(false);
    let measurements = rounds(&variants, repetitions, &never, &mut |_, _| {});
    let names = variants.iter().map(|variant| variant.name.clone());
    Ok(names.zip(measurements).collect())
}

const EXPLANATION: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. The stores are in memory. The
generator makes them of rows with five references each; three of ten paths are dead, and there is a
root for each 1,000 paths. A store of 100,000 paths has their files too, small ones. One of
1,000,000 paths has only those of the closure that is pushed.
";
