//! `cargo xtask bench all`: every table of docs/performance.md, one row after the other.
//!
//! Each finished row is saved. A run that was interrupted, or that reached its limit of time,
//! continues with the first row without samples when it is started again.

mod circumstances;
mod peers;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use xtask::workspace;

use crate::args::{AllArgs, LibfloeArgs, RECORDED_SIZES, RunArgs, ScaleArgs, ServeArgs};
use crate::closures::{self, Group};
use crate::libfloe;
use crate::outcome::Outcome;
use crate::scale;
use crate::schedule::{Journal, RowName, Schedule};
use crate::serve::{self, many_connections};
use peers::Peer;

/// A benchmark, its rows, and how it runs.
struct Benchmark {
    name: &'static str,
    rows: Vec<String>,
    run: Run,
}

/// Runs a benchmark with the options for each of them.
type Run = fn(&Path, &AllArgs, RunArgs) -> Result<Outcome>;

/// Runs one benchmark after the other, so that each has the machine for itself.
pub(crate) fn run(root: &Path, args: &AllArgs) -> Result<Outcome> {
    let benchmarks = wanted(args);
    anyhow::ensure!(!benchmarks.is_empty(), "no row matches {:?}", args.rows);
    let peers = peers::all(root, &args.commands);
    let directory = workspace::target_directory(root).join("bench/all");
    let circumstances = circumstances::read(root, &peers, args.quick)?;
    let journal = Journal::new(directory, circumstances);
    let rows = benchmarks.iter().flat_map(row_names).collect();
    let minutes = Duration::from_secs(60 * args.limit);
    let schedule = Schedule::new(journal, rows, minutes);
    let mut outcome = Outcome::Passed;
    for benchmark in &benchmarks {
        if schedule.has_work(benchmark.name, &benchmark.rows) {
            let found = (benchmark.run)(root, args, run_args(args, &schedule));
            let found = found.unwrap_or_else(|error| {
                eprintln!("bench {}: {error:#}", benchmark.name);
                Outcome::Failed
            });
            if found == Outcome::Failed {
                outcome = Outcome::Failed;
            }
        }
        schedule.leave_out(benchmark.name);
    }
    print!("{}", summary(&peers, &schedule, args.limit));
    Ok(outcome)
}

fn row_names(benchmark: &Benchmark) -> Vec<RowName> {
    let rows = benchmark.rows.iter();
    rows.map(|row| (benchmark.name, row.clone())).collect()
}

/// The benchmarks with the rows that were asked for.
fn wanted(args: &AllArgs) -> Vec<Benchmark> {
    let names = RunArgs {
        rows: args.rows.clone(),
        ..RunArgs::default()
    };
    let mut benchmarks = benchmarks();
    for benchmark in &mut benchmarks {
        benchmark.rows.retain(|row| names.wants(row));
    }
    benchmarks.retain(|benchmark| !benchmark.rows.is_empty());
    benchmarks
}

fn benchmarks() -> Vec<Benchmark> {
    let benchmark = |name, rows: Vec<String>, run: Run| Benchmark { name, rows, run };
    let libfloe = |name: &'static str, run| benchmark(name, vec![name.to_owned()], run);
    vec![
        benchmark(
            closures::NAME,
            closures::row_names(None),
            |root, _, args| closures::run(root, &args, None),
        ),
        benchmark(
            "network",
            closures::row_names(Some(Group::Network)),
            |root, _, args| closures::run(root, &args, Some(Group::Network)),
        ),
        benchmark(
            "upload",
            closures::row_names(Some(Group::Upload)),
            |root, _, args| closures::run(root, &args, Some(Group::Upload)),
        ),
        benchmark(
            "remote",
            closures::row_names(Some(Group::Remote)),
            |root, _, args| closures::run(root, &args, Some(Group::Remote)),
        ),
        benchmark(serve::NAME, serve::row_names(), |root, all, run| {
            let args = ServeArgs {
                run,
                commands: all.commands.clone(),
                ..ServeArgs::default()
            };
            serve::run(root, &args)
        }),
        benchmark(
            many_connections::NAME,
            vec![many_connections::ROW.into()],
            |root, _, args| many_connections::run(root, &args),
        ),
        benchmark(scale::NAME, scale::row_names(), |root, _, run| {
            let args = ScaleArgs {
                run,
                paths: RECORDED_SIZES.to_vec(),
                ..ScaleArgs::default()
            };
            scale::run(root, &args)
        }),
        libfloe("submit", |root, _, args| {
            libfloe::run(root, "submit", &LibfloeArgs::of(&args))
        }),
        libfloe("codec", |root, _, args| {
            libfloe::run(root, "codec", &LibfloeArgs::of(&args))
        }),
        libfloe("call", |root, _, args| {
            libfloe::run(root, "call", &LibfloeArgs::of(&args))
        }),
    ]
}

fn run_args(args: &AllArgs, schedule: &Schedule) -> RunArgs {
    RunArgs {
        quick: args.quick,
        rows: args.rows.clone(),
        record: args.record,
        schedule: schedule.clone(),
        ..RunArgs::default()
    }
}

/// Names what is missing in the results.
fn summary(peers: &[Peer], schedule: &Schedule, limit: u64) -> String {
    let mut text = String::new();
    for peer in peers {
        if let Err(reason) = &peer.version {
            text += &format!("absent: {} ({reason})\n", peer.name);
        }
    }
    let omissions = schedule.omissions();
    for row in &omissions.shortened {
        text += &format!("fewer rounds because of the limit: {row}\n");
    }
    for row in &omissions.left_out {
        text += &format!("not measured: {row}\n");
    }
    if !omissions.left_out.is_empty() {
        text += &format!(
            "rows without samples, because of an error or the limit of {limit} minutes: {}; start \
             the same command again to continue with them\n",
            omissions.left_out.len()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_has_rows_with_unique_names() {
        let mut names: Vec<RowName> = benchmarks().iter().flat_map(row_names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(
            benchmarks()
                .iter()
                .all(|benchmark| !benchmark.rows.is_empty())
        );
    }

    #[test]
    fn rows_select_benchmarks() {
        let args = AllArgs {
            rows: vec!["paths, gc of".into()],
            ..AllArgs::default()
        };
        let found = wanted(&args);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, scale::NAME);
        assert_eq!(found[0].rows, ["100,000 paths, gc of 30,000"]);
    }

    #[test]
    fn summary_names_absent_peers_and_rows() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::new(directory.path().into(), serde_json::Value::Null);
        let rows = vec![("scale", "a".to_owned())];
        let schedule = Schedule::new(journal, rows, Duration::ZERO);
        schedule.leave_out("scale");
        let peers = [
            Peer {
                name: "nix",
                version: Ok("2".into()),
            },
            Peer {
                name: "rclone",
                version: Err("not installed".into()),
            },
        ];
        let text = summary(&peers, &schedule, 150);
        assert!(text.starts_with("absent: rclone (not installed)\nnot measured: scale: a\n"));
        assert!(!text.contains("nix"), "{text}");
    }
}
