//! `cargo xtask bench install|copy|push|verify|closures`: floe beside Nix and beside a baseline of
//! the work, in one interleaved run.

mod chains;
mod collect;
mod cpu_quota;
mod disk;
mod fixture;
mod link;
mod network;
mod remote;
mod rows;
mod servers;
mod uploads;
mod variants;

use std::path::Path;

use anyhow::{Result, ensure};
use floe_bench::{Measurement, Repetitions, Report, Row, Unit, machine, rounds};
use serde_json::{Value, json};
use xtask::workspace;

use crate::aims::{FLOE, JudgedRow};
use crate::args::RunArgs;
use crate::outcome::Outcome;
use crate::programs;
use crate::results::{self, Results};
use crate::schedule::RowTime;
use fixture::Fixture;
pub(crate) use rows::Group;
use rows::{PreparedRow, RowPlan};

/// The name of the recorded results.
pub(crate) const NAME: &str = "closures";
/// The table of collections, which stands apart.
pub(crate) const COLLECT: &str = "collect";

const ROUNDS: usize = 7;
/// A run over a network takes up to half a minute.
const NETWORK_ROUNDS: usize = 3;

/// Measures the rows of one group, or of all.
pub(crate) fn run(root: &Path, args: &RunArgs, group: Option<Group>) -> Result<Outcome> {
    let is_wanted =
        |plan: &RowPlan| group.is_none_or(|group| group == plan.group) && args.wants(&plan.name);
    let network = Network::of(group);
    let is_network = network.is_some();
    let name = network.as_ref().map_or(NAME, |network| network.name);
    let tables = tables(group);
    let plans: Vec<RowPlan> = plans(group).into_iter().filter(is_wanted).collect();
    ensure!(!plans.is_empty(), "no row matches {:?}", args.rows);
    ensure!(
        !args.record || is_network || group.is_none(),
        "cannot record a part; use `bench closures --record`"
    );
    let machine = machine::machine();
    let directory = workspace::target_directory(root).join("bench");
    let _lock = programs::lock(&directory)?;
    let fixture = Fixture::prepare(root, directory.join(NAME), args.before.clone())?;
    let repetitions = Repetitions {
        warmup: 1,
        iterations: args.rounds(if is_network { NETWORK_ROUNDS } else { ROUNDS }),
    };
    let mut report = Report {
        title: match &network {
            Some(network) => network.title.into(),
            None => "Copying closures: floe beside Nix".into(),
        },
        machine,
        notes: fixture.versions(),
        rows: Vec::new(),
        interrupted: false,
    };
    let mut aims = Vec::new();
    for plan in &plans {
        let row = args.schedule.row(name, &plan.name, |time| {
            measure(&fixture, plan, (repetitions, time))
        });
        let Some(row) = row else { continue };
        eprintln!("  {}", JudgedRow::new(&row, plan.aim).describe());
        report.rows.push(row);
        aims.push(plan.aim);
    }
    if args.before.is_some() {
        return results::publish_comparison(&report, args.json.as_deref());
    }
    let results = Results {
        name,
        tables,
        report: &report,
        aims,
        explanation: network.map_or(EXPLANATION, |network| network.explanation),
        appendix: traffic_table(&report.rows),
    };
    Ok(if results.publish(root, args)? {
        Outcome::Passed
    } else {
        Outcome::Failed
    })
}

/// All rows of a group's benchmark.
fn plans(group: Option<Group>) -> Vec<RowPlan> {
    let network = Network::of(group);
    network.map_or_else(all, |network| (network.rows)())
}

/// The names of the rows of a group's benchmark.
pub(crate) fn row_names(group: Option<Group>) -> Vec<String> {
    plans(group).into_iter().map(|plan| plan.name).collect()
}

/// The tables of a group's benchmark in docs/performance.md.
fn tables(group: Option<Group>) -> Vec<(&'static str, Vec<String>)> {
    if let Some(network) = Network::of(group) {
        return vec![(network.name, row_names(group))];
    }
    let (collections, copies): (Vec<RowPlan>, Vec<RowPlan>) = plans(group)
        .into_iter()
        .partition(|plan| plan.group == Group::Collect);
    let names = |plans: Vec<RowPlan>| plans.into_iter().map(|plan| plan.name).collect();
    vec![(NAME, names(copies)), (COLLECT, names(collections))]
}

/// A group of rows over a network, which has a table of its own.
struct Network {
    name: &'static str,
    title: &'static str,
    rows: fn() -> Vec<RowPlan>,
    explanation: &'static str,
}

impl Network {
    fn of(group: Option<Group>) -> Option<Network> {
        match group? {
            Group::Network => Some(Network {
                name: "network",
                title: "Installing closures over a network: floe beside Nix",
                rows: network::all,
                explanation: NETWORK,
            }),
            Group::Upload => Some(Network {
                name: "upload",
                title: "Uploading closures over a network: floe beside Nix",
                rows: uploads::all,
                explanation: UPLOAD,
            }),
            Group::Remote => Some(Network {
                name: "remote",
                title: "Copying closures through a Nix daemon: floe beside Nix",
                rows: remote::all,
                explanation: REMOTE,
            }),
            _ => None,
        }
    }
}

fn measure(fixture: &Fixture, plan: &RowPlan, (repetitions, time): (Repetitions, &RowTime)) -> Row {
    let row = |facts: Value, measurements| Row {
        name: plan.name.clone(),
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
            let mut on_round = |done: usize, _: &[Measurement]| {
                let counted = done.saturating_sub(repetitions.warmup);
                time.after_round(counted, repetitions.iterations);
            };
            let variants = &prepared.variants;
            let measurements = rounds(variants, repetitions, time.stop(), &mut on_round);
            let names = prepared.variants.iter().map(|variant| variant.name.clone());
            let facts = json!({
                "baseline": prepared.baseline,
                "bytes": *prepared.sizes.borrow(),
                "traffic": traffic(&prepared),
            });
            row(facts, names.zip(measurements).collect())
        }
    }
}

/// The traffic of each variant as JSON: connections, bytes and round trips.
fn traffic(row: &PreparedRow<'_>) -> Value {
    let traffic = row.traffic.borrow();
    let by_name = traffic.iter().map(|(name, it)| {
        let counts = json!([it.connections, it.sent, it.received, it.round_trips_max]);
        (name.clone(), counts)
    });
    Value::Object(by_name.collect())
}

/// A table of the traffic of all rows; empty without a network.
fn traffic_table(rows: &[Row]) -> String {
    let mut lines = String::new();
    for row in rows {
        for (name, counts) in row.facts["traffic"].as_object().into_iter().flatten() {
            let count = |at: usize| counts[at].as_u64().unwrap_or_default();
            let received = count(2) as f64 / 1e6;
            lines += &format!(
                "| {} | {name} | {} | {} | {received:.1} MB | {} |\n",
                row.name,
                count(0),
                count(1),
                count(3)
            );
        }
    }
    if lines.is_empty() {
        lines
    } else {
        format!("{TRAFFIC_HEAD}{lines}")
    }
}

const TRAFFIC_HEAD: &str = "
The last run of each variant. Round trips are those of the connection with most of them.

| row | variant | connections | bytes sent | received | round trips |
|---|---|---|---|---|---|
";

const NETWORK: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. Client and server are in two
network namespaces; the packets between them are delayed by half of the round trip in each
direction. nginx serves a cache with ready zstd files, whose nix-cache-info has no WantMassQuery
unless the row says so. Nix 2.35 has changed its walk and its uploads; it is not measured here.
";

const UPLOAD: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. Client and server are in two
network namespaces; the packets between them are delayed by half of the round trip in each
direction. S3 is versitygw, which keeps objects in memory here, and its bucket is open to all,
because this Nix cannot sign requests; floe signs. PUT is nginx. floe serve reads and hashes each
NAR that it receives before it publishes the narinfo. All programs compress with zstd. Nix 2.35
uploads in any order; it is not measured here.
";

const REMOTE: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. The daemon is that of the
newest Nix for all variants, or in rows with *each* that of the variant. With a delay, it runs in
another network namespace behind a real sshd; the packets between the namespaces are delayed by half
of the round trip in each direction. All stores are in memory, and the store that was written is
checked after each run.
";

const EXPLANATION: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. The baseline is the CPU time
of receiving, decoding or reading, hashing and writing, each done by itself and one message hashed
at a time. It is divided by the number of cores, unless CPU time is compared. An aim is also met
within 1.15 times the baseline.
";

/// All rows that are measured on one machine.
fn all() -> Vec<RowPlan> {
    rows::all().into_iter().chain(collect::rows()).collect()
}
