//! `cargo xtask bench install|copy|push|verify|moves`: floe beside Nix and beside the least that
//! the work can take, in one interleaved run.

mod chains;
mod delay;
mod fixture;
mod quota;
mod rows;
mod summary;
mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use floe_bench::{Measurement, Report, Row, machine, rounds};
use serde_json::json;

use super::{record, serve};
use crate::Outcome;
use fixture::Fixture;
use rows::Plan;
use summary::Judged;

pub(super) const USAGE: &str = "    [--quick]              fewer rounds, to see that all works
    [--rounds N]           this many rounds after one for warming up
    [--row PART]...        only the rows with PART in their name
    [--json FILE]          writes all samples and the facts of the machine
    [--record]             writes bench/results/moves.* and the table in README.md
  Needs nginx and nix-bin from apt, and root for the rows on ext4 and on a part of a core. Corpora:
  `cargo xtask test --full` makes firefox-esr, bench/corpus/make-corpus makes kdenlive;
  FLOE_CORPORA names a directory of others, FLOE_BENCH_NIX one with bin/nix, FLOE_BIN a floe.";

struct Options {
    rounds: usize,
    rows: Vec<String>,
    json: Option<PathBuf>,
    record: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options {
            rounds: ROUNDS,
            rows: Vec::new(),
            json: None,
            record: false,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let value = rest.next().cloned();
                value.ok_or_else(|| format!("{argument} wants a value"))
            };
            match argument.as_str() {
                "--quick" => options.rounds = ROUNDS_QUICK,
                "--rounds" => {
                    let number = value()?.parse().ok().filter(|rounds| *rounds > 0);
                    options.rounds = number.ok_or("--rounds wants a number")?;
                }
                "--row" => options.rows.push(value()?),
                "--json" => options.json = Some(value()?.into()),
                "--record" => options.record = true,
                _ => return Err(format!("this benchmark takes no `{argument}`")),
            }
        }
        Ok(options)
    }
}

/// Odd, so that a median was measured.
const ROUNDS: usize = 7;
const ROUNDS_QUICK: usize = 3;

pub(super) fn install(root: &Path, arguments: &[String]) -> Result<Outcome> {
    command(root, arguments, Some("install"))
}

pub(super) fn copy(root: &Path, arguments: &[String]) -> Result<Outcome> {
    command(root, arguments, Some("copy"))
}

pub(super) fn push(root: &Path, arguments: &[String]) -> Result<Outcome> {
    command(root, arguments, Some("push"))
}

pub(super) fn verify(root: &Path, arguments: &[String]) -> Result<Outcome> {
    command(root, arguments, Some("verify"))
}

pub(super) fn all(root: &Path, arguments: &[String]) -> Result<Outcome> {
    command(root, arguments, None)
}

fn command(root: &Path, arguments: &[String], group: Option<&str>) -> Result<Outcome> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(problem) => return Ok(Outcome::Usage(problem)),
    };
    let wanted = |plan: &Plan| {
        let is_named = |part: &String| plan.name.contains(part.as_str());
        group.is_none_or(|group| group == plan.group)
            && (options.rows.is_empty() || options.rows.iter().any(is_named))
    };
    let plans: Vec<Plan> = rows::all().into_iter().filter(wanted).collect();
    if plans.is_empty() {
        return Ok(Outcome::Usage(format!(
            "no row is called {:?}",
            options.rows
        )));
    }
    if options.record && (group.is_some() || !options.rows.is_empty()) {
        return Ok(Outcome::Usage(
            "--record is for all rows: bench moves --record".into(),
        ));
    }
    let machine = machine::machine();
    let place = xtask::workspace::target_directory(root).join("bench");
    let _alone = serve::lock_machine(&place)?;
    let fixture = Fixture::prepare(root, place.join("moves"))?;
    let mut report = Report {
        title: "Moving closures: floe beside Nix".into(),
        machine,
        notes: fixture.versions(),
        rows: Vec::new(),
        interrupted: false,
    };
    let mut judged = Vec::new();
    for plan in &plans {
        eprintln!("{}", plan.name);
        let (row, verdict) = measure(&fixture, plan, options.rounds);
        eprintln!("  {}", verdict.describe());
        report.rows.push(row);
        judged.push(verdict);
    }
    let text = summary::document(&report, &judged);
    print!("{text}");
    let json = serde_json::to_string(&report.json())? + "\n";
    if let Some(file) = &options.json {
        record::write(file, &json)?;
    }
    if options.record {
        let results = root.join("bench/results");
        record::write(&results.join("moves.md"), &text)?;
        record::write(&results.join("moves.json"), &json)?;
        record::write(&results.join("moves.svg"), &report.svg())?;
        record::table(root, "moves", &summary::table(&judged))?;
    }
    Ok(match judged.iter().all(Judged::was_measured) {
        true => Outcome::Good,
        false => Outcome::Bad,
    })
}

fn measure(fixture: &Fixture, plan: &Plan, iterations: usize) -> (Row, Judged) {
    let not_run = |why: String| Row {
        name: plan.name.into(),
        facts: json!({}),
        measurements: vec![(rows::FLOE.into(), Measurement::Failed(why))],
    };
    let row = match (plan.set)(fixture) {
        Err(error) => not_run(format!("{error:#}")),
        Ok(set) => {
            let times = floe_bench::Repetitions {
                warmup: 1,
                iterations,
            };
            let never = AtomicBool::new(false);
            let measurements = rounds(&set.variants, times, &never, &mut |_, _| {});
            let names = set.variants.iter().map(|it| it.name.clone());
            let row = Row {
                name: plan.name.into(),
                facts: json!({ "baseline": set.baseline, "bytes": *set.sizes.borrow() }),
                measurements: names.zip(measurements).collect(),
            };
            drop(set.variants);
            drop(set.kept);
            row
        }
    };
    let verdict = Judged::of(plan, &row);
    (row, verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let parse = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Options::parse(&words)
        };
        assert_eq!(parse(&["--rounds", "5"]).unwrap().rounds, 5);
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--fast"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
