//! `cargo xtask bench serve`: `floe serve` beside nginx over a cache of files, and beside other
//! servers of a store, all over the same paths and with the same key.

mod checks;
mod load;
pub(crate) mod many_connections;
mod nix_client;
mod peers;
mod processes;
mod rows;
mod session;
mod workload;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use floe_bench::{Measurement, Report, Row, Table, machine, significant};
use xtask::{system, workspace};

use crate::aims::JudgedRow;
use crate::args::ServeArgs;
use crate::outcome::Outcome;
use crate::programs;
use crate::results::{self, Results};
use nix_client::NixClient;
pub(crate) use peers::NIX_SERVE;
use peers::Peer;
use rows::{Request, RowPlan};
use session::Session;
use workload::Workload;

/// The name of the recorded results.
pub(crate) const NAME: &str = "serve";

/// Measures the rows that were asked for.
pub(crate) fn run(root: &Path, args: &ServeArgs) -> Result<Outcome> {
    for tool in ["wrk", "zstd", "curl", "openssl"] {
        programs::installed(tool, tool)?;
    }
    let mut plans = rows::all();
    plans.retain(|plan| args.run.wants(&plan.name));
    ensure!(!plans.is_empty(), "no row matches {:?}", args.run.rows);
    // Describe the machine before the preparations raise its load.
    let machine = machine::machine();
    let peers = peers::all(root, args)?;
    let skipped = skip_tls(&mut plans, &peers);
    ensure!(!plans.is_empty(), "no row is left");
    let directory = workspace::target_directory(root).join("bench");
    let _lock = programs::lock(&directory)?;
    let mut workload = Workload::prepare(root, &directory.join(NAME))?;
    if plans
        .iter()
        .any(|plan| plan.work.request() == Request::ManyNars)
    {
        workload.add_many()?;
    }
    let client = NixClient::find(root);
    let mut session = Session::start(&args.run, &workload, directory.join("run"), &peers)?;
    session.client = client;

    let mut report = Report {
        title: "Serving a store: floe beside nginx".into(),
        machine,
        notes: Vec::new(),
        rows: Vec::new(),
        interrupted: false,
    };
    let mut aims = Vec::new();
    for plan in &plans {
        let schedule = &args.run.schedule;
        let row = schedule.row(NAME, &plan.name, |time| session.measure(plan, time));
        let Some(row) = row else { continue };
        eprintln!("  {}", JudgedRow::new(&row, plan.aim).describe());
        report.rows.push(row);
        aims.push(plan.aim);
    }
    report.notes = notes(root, &session, &peers);
    report.notes.extend(skipped);
    drop(session);
    if args.run.before.is_some() {
        return results::publish_comparison(&report, args.run.json.as_deref());
    }
    let results = Results {
        name: NAME,
        tables: vec![(NAME, row_names())],
        report: &report,
        aims,
        explanation: EXPLANATION,
        appendix: format!("\n{}", memory_table(&report.rows)),
    };
    // A row without its rival is not a failure: not every machine has every server.
    results.publish(root, &args.run)?;
    Ok(Outcome::Passed)
}

/// The names of all rows.
pub(crate) fn row_names() -> Vec<String> {
    rows::all().into_iter().map(|plan| plan.name).collect()
}

/// Removes the rows over TLS if a floe has no TLS, and returns the reason.
fn skip_tls(plans: &mut Vec<RowPlan>, peers: &[Peer]) -> Option<String> {
    let name = peers::floe_without_tls(peers)?;
    let count = plans.len();
    plans.retain(|plan| !plan.work.is_over_tls());
    let skipped = count - plans.len();
    let reason = format!("skipping {skipped} rows over TLS: {name} has no option --tls-cert");
    (skipped > 0).then(|| {
        eprintln!("{reason}");
        reason
    })
}

const EXPLANATION: &str = "\
Costs are medians; ratios are medians of the ratios of single rounds. CPU time is that of the
server. The load generator runs on the same cores, on loopback.
";

/// The circumstances that a reader needs to judge the figures.
fn notes(root: &Path, session: &Session<'_>, peers: &[Peer]) -> Vec<String> {
    let seconds = session.load_time().as_secs_f64();
    let mut notes = vec![format!(
        "{} rounds of {seconds} s, the servers taking turns; with 500 paths and with large NARs \
         over TLS, of {} s.",
        session.rounds(),
        seconds * f64::from(rows::LONG_LOAD)
    )];
    if session.is_quick() {
        notes.push("A quick run: its figures are too uncertain to be quoted.".into());
    }
    notes.push(format!(
        "Corpus: {}, {} paths.",
        session.workload.corpus_name,
        session.workload.closure.len()
    ));
    for (peer, version) in peers.iter().zip(session.versions(peers)) {
        notes.push(format!("{}: {version}", peer.name));
    }
    notes.extend(commit(root).map(|commit| format!("floe is built from commit {commit}.")));
    notes.extend(session.tls_notes());
    let client = session.client.as_ref();
    notes.push(client.map_or_else(Clone::clone, |nix| nix.version.clone()));
    notes.extend(wrk_version());
    notes
}

/// The commit from which floe is built; `None` for a given binary.
fn commit(root: &Path) -> Option<String> {
    if system::variable("FLOE_BIN").is_some() {
        return None;
    }
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "describe", "--always", "--dirty"]);
    machine::first_line(git.current_dir(root))
}

/// The first two words of `wrk debian/4.1.0 [epoll] Copyright …`.
fn wrk_version() -> Option<String> {
    let line = machine::first_line(Command::new("wrk").arg("-v"))?;
    let words: Vec<&str> = line.split(' ').take(2).collect();
    Some(words.join(" "))
}

/// The largest memory of each server in any row.
fn memory_table(rows: &[Row]) -> String {
    let measurements = || rows.iter().flat_map(|row| &row.measurements);
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in measurements() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut table = Table::new(&["server", "peak RSS, MB", "PSS after a row, MB"]);
    for name in names {
        let of_server = measurements().filter(|(server, _)| server == name);
        let samples: Vec<_> = of_server
            .flat_map(|(_, measurement): &(String, Measurement)| measurement.samples())
            .collect();
        let largest = |bytes: &dyn Fn(&floe_bench::Sample) -> Option<u64>| {
            let largest = samples.iter().filter_map(|sample| bytes(sample)).max();
            largest.map_or("not measured".to_owned(), |bytes| {
                significant(bytes as f64 / 1e6)
            })
        };
        table.row(&[
            name.clone(),
            largest(&|sample| sample.peak_memory),
            largest(&|sample| sample.final_memory),
        ]);
    }
    table.into_markdown()
}
