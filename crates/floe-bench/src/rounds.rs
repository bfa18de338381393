//! Contestants take turns: a round is one run of each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::BenchError;
use crate::run::{Invocation, Sample, remove, run};

/// Somebody who does the work.
pub struct Contestant<'a> {
    /// How it is called in reports.
    pub name: String,
    /// What it runs.
    pub invocation: Invocation,
    /// What must not exist when it begins, and is removed after it has ended.
    pub wiped: Vec<PathBuf>,
    /// Makes what it needs, outside the time, after the wiping.
    pub prepare: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
    /// Whether what it did is right, looked at after every run, outside the time.
    pub check: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
}

/// What became of a contestant.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A sample for each round; fewer if the benchmark was stopped.
    Ran(Vec<Sample>),
    /// Why there are none that count.
    Void(String),
}

impl Cell {
    /// The samples, if they count.
    pub fn samples(&self) -> &[Sample] {
        match self {
            Cell::Ran(samples) => samples,
            Cell::Void(_) => &[],
        }
    }
}

/// How often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds that do not count.
    pub warmup: usize,
    /// Rounds that count.
    pub iterations: usize,
}

/// Lets everybody take turns; each round begins with another one. `watch` sees the cells after
/// each round, with the number of rounds done so far, warm-up included.
///
/// A contestant that fails, or whose result is wrong, is left out from then on: its cell says why,
/// and its samples are gone. When `stop` is raised, the running command is ended and what was
/// measured is kept.
pub fn rounds(
    contestants: &[Contestant<'_>],
    plan: Plan,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(usize, &[Cell]),
) -> Vec<Cell> {
    let mut cells = vec![Cell::Ran(Vec::new()); contestants.len()];
    for round in 0..plan.warmup + plan.iterations {
        let is_warmup = round < plan.warmup;
        for turn in 0..contestants.len() {
            let index = (turn + round) % contestants.len();
            let Cell::Ran(samples) = &mut cells[index] else {
                continue;
            };
            if stop.load(Ordering::Relaxed) {
                return cells;
            }
            match take_turn(&contestants[index], stop) {
                Ok(sample) if !is_warmup => samples.push(sample),
                Ok(_) => {}
                Err(BenchError::Interrupted) => return cells,
                Err(error) => cells[index] = Cell::Void(error.to_string()),
            }
        }
        watch(round + 1, &cells);
        if !cells.iter().any(|cell| matches!(cell, Cell::Ran(_))) {
            break;
        }
    }
    cells
}

fn take_turn(contestant: &Contestant<'_>, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let wipe = || contestant.wiped.iter().try_for_each(|path| remove(path));
    wipe()?;
    (contestant.prepare)()?;
    let result =
        run(&contestant.invocation, stop).and_then(|sample| (contestant.check)().map(|()| sample));
    let wiped = wipe();
    let sample = result?;
    wiped?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
