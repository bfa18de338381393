//! Rounds: the variants take turns, so that a drift of the machine hits all of them alike.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{BenchError, IoContext as _};
use crate::file_system::sync;
use crate::run::{Invocation, remove_tree, run};
use crate::sample::Sample;

/// A program that does the work of a row, with its own preparation and check.
pub struct Variant<'a> {
    /// Name in reports.
    pub name: String,
    /// The command to time.
    pub invocation: Invocation,
    /// The home of the command: an empty directory in each run.
    pub home: PathBuf,
    /// Other paths removed before and after each run, outside the timed part.
    pub scratch_paths: Vec<PathBuf>,
    /// Prepares each run, outside the timed part, when the scratch paths are removed.
    pub prepare: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
    /// A directory whose file system is synchronised before each run. Data of earlier runs must
    /// not be written to its disk during this run.
    pub synced: Option<PathBuf>,
    /// Checks the result of each run, outside the timed part.
    pub check: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
}

/// The samples of a variant, or why it has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    /// One sample per counted round; fewer if the benchmark was interrupted.
    Ran(Vec<Sample>),
    /// The reason why no samples count.
    Failed(String),
}

impl Measurement {
    /// The samples; empty if the variant failed.
    pub fn samples(&self) -> &[Sample] {
        match self {
            Measurement::Ran(samples) => samples,
            Measurement::Failed(_) => &[],
        }
    }
}

/// How many rounds to run.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    /// Rounds that do not count.
    pub warmup: usize,
    /// Rounds that count.
    pub iterations: usize,
}

/// Runs commands in rounds, as [`take_turns`] does, and checks the result of each run.
///
/// When `stop` is raised, the running command is ended and the samples so far are kept.
pub fn rounds(
    variants: &[Variant<'_>],
    repetitions: Repetitions,
    stop: &AtomicBool,
    on_round: &mut dyn FnMut(usize, &[Measurement]),
) -> Vec<Measurement> {
    let mut turn = |index: usize| {
        if stop.load(Ordering::Relaxed) {
            Err(BenchError::Interrupted)
        } else {
            run_once(&variants[index], stop)
        }
    };
    take_turns(variants.len(), repetitions, &mut turn, on_round)
}

/// Lets variants, given by index, take turns. Each round starts with the next variant, so that
/// none always runs after the same other one. `on_round` gets the number of rounds so far,
/// including the warm-up, and the measurements.
///
/// A variant that fails loses its samples and does not run again. [`BenchError::Interrupted`] ends
/// the benchmark and keeps the samples so far.
pub fn take_turns(
    variants: usize,
    repetitions: Repetitions,
    turn: &mut dyn FnMut(usize) -> Result<Sample, BenchError>,
    on_round: &mut dyn FnMut(usize, &[Measurement]),
) -> Vec<Measurement> {
    let mut measurements = vec![Measurement::Ran(Vec::new()); variants];
    for round in 0..repetitions.warmup + repetitions.iterations {
        let is_warmup = round < repetitions.warmup;
        for step in 0..variants {
            let index = (step + round) % variants;
            let Measurement::Ran(samples) = &mut measurements[index] else {
                continue;
            };
            match turn(index) {
                Ok(sample) if !is_warmup => samples.push(sample),
                Ok(_) => {}
                Err(BenchError::Interrupted) => return measurements,
                Err(error) => measurements[index] = Measurement::Failed(error.to_string()),
            }
        }
        on_round(round + 1, &measurements);
        let has_failed = |it: &Measurement| matches!(it, Measurement::Failed(_));
        if measurements.iter().all(has_failed) {
            break;
        }
    }
    measurements
}

fn run_once(variant: &Variant<'_>, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let remove_scratch = || {
        let mut paths = variant.scratch_paths.iter().chain([&variant.home]);
        paths.try_for_each(|path| remove_tree(path))
    };
    remove_scratch()?;
    fs::create_dir(&variant.home).at("create", &variant.home)?;
    (variant.prepare)()?;
    variant.synced.as_deref().map_or(Ok(()), sync)?;
    let result = run(&variant.invocation, stop);
    let checked = result.and_then(|sample| (variant.check)().map(|()| sample));
    // Remove what a failed run left, but report its error first.
    let removed = remove_scratch();
    let sample = checked?;
    removed?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
