//! Contestants take turns: a round is one run of each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::BenchError;
use crate::run::{Invocation, Sample, remove, run};

/// Somebody who does the work.
pub struct Variant<'a> {
    /// How it is called in reports.
    pub name: String,
    /// What it runs.
    pub invocation: Invocation,
    /// What must not exist when it begins, and is removed after it has ended.
    pub scratch_paths: Vec<PathBuf>,
    /// Makes what it needs, outside the time, after the wiping.
    pub prepare: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
    /// Whether what it did is right, looked at after every run, outside the time.
    pub check: Box<dyn Fn() -> Result<(), BenchError> + 'a>,
}

/// What became of a variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    /// A sample for each round; fewer if the benchmark was stopped.
    Ran(Vec<Sample>),
    /// Why there are none that count.
    Failed(String),
}

impl Measurement {
    /// The samples, if they count.
    pub fn samples(&self) -> &[Sample] {
        match self {
            Measurement::Ran(samples) => samples,
            Measurement::Failed(_) => &[],
        }
    }
}

/// How often.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    /// Rounds that do not count.
    pub warmup: usize,
    /// Rounds that count.
    pub iterations: usize,
}

/// Lets everybody take turns; each round begins with another one. `watch` sees the
/// measurements after each round, with the number of rounds done so far, warm-up included.
///
/// A variant that fails, or whose result is wrong, is left out from then on: its cell says why,
/// and its samples are gone. When `stop` is raised, the running command is ended and what was
/// measured is kept.
pub fn rounds(
    variants: &[Variant<'_>],
    plan: Repetitions,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(usize, &[Measurement]),
) -> Vec<Measurement> {
    let mut measurements = vec![Measurement::Ran(Vec::new()); variants.len()];
    for round in 0..plan.warmup + plan.iterations {
        let is_warmup = round < plan.warmup;
        for turn in 0..variants.len() {
            let index = (turn + round) % variants.len();
            let Measurement::Ran(samples) = &mut measurements[index] else {
                continue;
            };
            if stop.load(Ordering::Relaxed) {
                return measurements;
            }
            match run_once(&variants[index], stop) {
                Ok(sample) if !is_warmup => samples.push(sample),
                Ok(_) => {}
                Err(BenchError::Interrupted) => return measurements,
                Err(error) => measurements[index] = Measurement::Failed(error.to_string()),
            }
        }
        watch(round + 1, &measurements);
        if !measurements
            .iter()
            .any(|cell| matches!(cell, Measurement::Ran(_)))
        {
            break;
        }
    }
    measurements
}

fn run_once(variant: &Variant<'_>, stop: &AtomicBool) -> Result<Sample, BenchError> {
    let wipe = || {
        variant
            .scratch_paths
            .iter()
            .try_for_each(|path| remove(path))
    };
    wipe()?;
    (variant.prepare)()?;
    let result =
        run(&variant.invocation, stop).and_then(|sample| (variant.check)().map(|()| sample));
    let scratch_paths = wipe();
    let sample = result?;
    scratch_paths?;
    Ok(sample)
}

#[cfg(test)]
mod tests;
