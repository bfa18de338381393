//! `cargo xtask bench install|copy|push|verify|closures`: floe beside Nix and beside a baseline of
//! the work, in one interleaved run.

mod chains;
mod cpu_quota;
mod disk;
mod fixture;
mod latency_proxy;
mod rows;
mod variants;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use floe_bench::{Measurement, Repetitions, Report, Row, Unit, machine, rounds};
use serde_json::{Value, json};
use xtask::workspace;

use crate::aims::{FLOE, JudgedRow};
use crate::args::RunArgs;
use crate::outcome::Outcome;
use crate::programs;
use crate::results::{self, Results};
use fixture::Fixture;
pub(crate) use rows::Group;
use rows::RowPlan;

/// The name of the recorded results.
pub(crate) const NAME: &str = "closures";

const ROUNDS: usize = 7;

/// Measures the rows of one group, or of all.
pub(crate) fn run(root: &Path, args: &RunArgs, group: Option<Group>) -> Result<Outcome> {
    let is_wanted =
        |plan: &RowPlan| group.is_none_or(|group| group == plan.group) && args.wants(plan.name);
    let plans: Vec<RowPlan> = rows::all().into_iter().filter(is_wanted).collect();
    ensure!(!plans.is_empty(), "no row matches {:?}", args.rows);
    ensure!(
        !args.record || group.is_none(),
        "cannot record a part; use `bench closures --record`"
    );
    let machine = machine::machine();
    let directory = workspace::target_directory(root).join("bench");
    let _lock = programs::lock(&directory)?;
    let fixture = Fixture::prepare(root, directory.join(NAME), args.before.clone())?;
    let repetitions = Repetitions {
        warmup: 1,
        iterations: args.rounds(ROUNDS),
    };
    let mut report = Report {
        title: "Copying closures: floe beside Nix".into(),
        machine,
        notes: fixture.versions(),
        rows: Vec::new(),
        interrupted: false,
    };
    for plan in &plans {
        eprintln!("{}", plan.name);
        let row = measure(&fixture, plan, repetitions);
        eprintln!("  {}", JudgedRow::new(&row, plan.aim).describe());
        report.rows.push(row);
    }
    if args.before.is_some() {
        return results::publish_comparison(&report, args.json.as_deref());
    }
    let results = Results {
        name: NAME,
        report: &report,
        aims: plans.iter().map(|plan| plan.aim).collect(),
        explanation: EXPLANATION,
        appendix: String::new(),
    };
    Ok(match results.publish(root, args)? {
        true => Outcome::Passed,
        false => Outcome::Failed,
    })
}

fn measure(fixture: &Fixture, plan: &RowPlan, repetitions: Repetitions) -> Row {
    let row = |facts: Value, measurements| Row {
        name: plan.name.into(),
        unit: Unit::Run,
        facts,
        measurements,
    };
    match (plan.prepare)(fixture) {
        Err(error) => {
            let failed = Measurement::Failed(format!("{error:#}"));
            row(json!({}), vec![(FLOE.into(), failed)])
        }
        Ok(prepared) => {
            let never = AtomicBool::new(false);
            let measurements = rounds(&prepared.variants, repetitions, &never, &mut |_, _| {});
            let names = prepared.variants.iter().map(|variant| variant.name.clone());
            let facts = json!({
                "baseline": prepared.baseline,
                "bytes": *prepared.sizes.borrow(),
            });
            row(facts, names.zip(measurements).collect())
        }
    }
}

const EXPLANATION: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. The baseline is the CPU time
of decoding or reading, hashing and writing, each done by itself and one message hashed at a time.
It is divided by the number of cores, unless CPU time is compared. An aim is also met within 1.15
times the baseline.
";
