//! `cargo xtask bench scale`: commands of floe on synthetic stores with many paths, beside those of
//! Nix.

mod checks;
mod commands;
mod rows;
mod serve_start;
mod stage;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use floe_bench::{Measurement, Repetitions, Report, Row, Unit, machine, rounds};
use serde_json::json;
use xtask::workspace;

use crate::aims::{FLOE, JudgedRow};
use crate::args::{MakeStoreArgs, RECORDED_SIZES, ScaleArgs};
use crate::outcome::Outcome;
use crate::programs;
use crate::results::{self, Results};
use crate::schedule::RowTime;
use crate::synthetic_store;
use rows::{RowPlan, Task};
use stage::Stage;

/// The name of the recorded results.
pub(crate) const NAME: &str = "scale";

const ROUNDS: usize = 5;

/// The names of all rows of the recorded table.
pub(crate) fn row_names() -> Vec<String> {
    let args = ScaleArgs {
        paths: RECORDED_SIZES.to_vec(),
        ..ScaleArgs::default()
    };
    let plans = rows::all(&args).into_iter();
    plans.map(|plan| plan.name).collect()
}

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
    let mut aims = Vec::new();
    for plan in &plans {
        let rounds = args.run.rounds(ROUNDS);
        let schedule = &args.run.schedule;
        let row = schedule.row(NAME, &plan.name, |time| {
            measure(&mut stage, plan, (rounds, time))
        });
        let Some(row) = row else { continue };
        eprintln!("  {}", JudgedRow::new(&row, plan.aim).describe());
        report.rows.push(row);
        aims.push(plan.aim);
    }
    if args.run.before.is_some() {
        return results::publish_comparison(&report, args.run.json.as_deref());
    }
    let results = Results {
        name: NAME,
        tables: vec![(NAME, row_names())],
        report: &report,
        aims,
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

fn measure(stage: &mut Stage, plan: &RowPlan, (iterations, time): (usize, &RowTime)) -> Row {
    let repetitions = Repetitions {
        warmup: 1,
        iterations,
    };
    let measured = stage
        .make_store(plan)
        .and_then(|()| measure_variants(stage, plan, (repetitions, time)));
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
    (repetitions, time): (Repetitions, &RowTime),
) -> Result<Vec<(String, Measurement)>> {
    if plan.task == Task::ServeStart {
        return serve_start::measure(stage, plan, (repetitions, time));
    }
    let variants = commands::variants(stage, plan).context("cannot prepare the row")?;
    let mut on_round = |done: usize, _: &[Measurement]| {
        time.after_round(
            done.saturating_sub(repetitions.warmup),
            repetitions.iterations,
        );
    };
    let measurements = rounds(&variants, repetitions, time.stop(), &mut on_round);
    let names = variants.iter().map(|variant| variant.name.clone());
    Ok(names.zip(measurements).collect())
}

const EXPLANATION: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. The stores are in memory. The
generator makes them of rows with five references each; three of ten paths are dead, and there is a
root for each 1,000 paths. A store of 100,000 paths has their files too, small ones. One of
1,000,000 paths has only those of the closure that is pushed.
";
