//! The rows of a run: `bench all` keeps those of an earlier run, and a limit of time shortens rows
//! or leaves them out.
//!
//! A benchmark that runs alone has the default schedule, which measures every row.

mod journal;
mod row_time;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::{Duration, Instant};

use floe_bench::{Measurement, Row, machine};
use serde_json::json;

use crate::aims::FLOE;
pub(crate) use journal::Journal;
pub(crate) use row_time::RowTime;

/// The schedule of one benchmark, or of several that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule(Option<Rc<RefCell<Plan>>>);

/// A row by the name of its benchmark and its own.
pub(crate) type RowName = (&'static str, String);

#[derive(Debug)]
struct Plan {
    journal: Journal,
    end: Instant,
    /// The rows that no earlier run has measured, and that this run has not come to.
    waiting: BTreeSet<RowName>,
    left_out: Vec<String>,
    shortened: Vec<String>,
}

/// The rows that a run with a limit could not measure in full.
#[derive(Debug, Default)]
pub(crate) struct Omissions {
    /// Rows without samples.
    pub(crate) left_out: Vec<String>,
    /// Rows with fewer rounds.
    pub(crate) shortened: Vec<String>,
}

impl Schedule {
    /// The schedule of rows that must end within a time from now.
    pub(crate) fn new(journal: Journal, rows: Vec<RowName>, limit: Duration) -> Schedule {
        let rows = rows.into_iter();
        let waiting = rows.filter(|(benchmark, row)| journal.load(benchmark, row).is_none());
        Schedule(Some(Rc::new(RefCell::new(Plan {
            waiting: waiting.collect(),
            journal,
            end: Instant::now() + limit.saturating_sub(RESERVE),
            left_out: Vec::new(),
            shortened: Vec::new(),
        }))))
    }

    /// Returns the row of an earlier run, or measures it. `None` if no time is left.
    pub(crate) fn row(
        &self,
        benchmark: &'static str,
        name: &str,
        measure: impl FnOnce(&RowTime) -> Row,
    ) -> Option<Row> {
        eprintln!("{name}");
        let Some(plan) = &self.0 else {
            return Some(stamped(measure(&RowTime::default())));
        };
        if let Some(row) = plan.borrow().journal.load(benchmark, name) {
            eprintln!("  kept from an earlier run");
            return Some(row);
        }
        let time = plan.borrow_mut().begin(benchmark, name)?;
        let row = equal_rounds(stamped(measure(&time)));
        plan.borrow_mut().finish(benchmark, row, time)
    }

    /// Whether a row of a benchmark can be kept or measured.
    pub(crate) fn has_work(&self, benchmark: &'static str, rows: &[String]) -> bool {
        let Some(plan) = &self.0 else {
            return true;
        };
        let plan = plan.borrow();
        let is_kept = |row: &String| !plan.waiting.contains(&(benchmark, row.clone()));
        Instant::now() < plan.end || rows.iter().any(is_kept)
    }

    /// Leaves out the rows of a benchmark that were not reached.
    pub(crate) fn leave_out(&self, benchmark: &'static str) {
        let Some(plan) = &self.0 else {
            return;
        };
        let mut plan = plan.borrow_mut();
        let rest = plan.waiting.iter().filter(|(of, _)| *of == benchmark);
        let rest: Vec<RowName> = rest.cloned().collect();
        for row in rest {
            plan.waiting.remove(&row);
            plan.left_out.push(title(&row));
        }
    }

    /// The rows without samples or with fewer rounds.
    pub(crate) fn omissions(&self) -> Omissions {
        let Some(plan) = &self.0 else {
            return Omissions::default();
        };
        let plan = plan.borrow();
        Omissions {
            left_out: plan.left_out.clone(),
            shortened: plan.shortened.clone(),
        }
    }
}

impl Plan {
    /// Gives a row its part of the time; `None` if nothing is left.
    fn begin(&mut self, benchmark: &'static str, name: &str) -> Option<RowTime> {
        let waiting = self.waiting.len().max(1);
        let row = (benchmark, name.to_owned());
        self.waiting.remove(&row);
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            eprintln!("  left out: the limit of time is reached");
            self.left_out.push(title(&row));
            return None;
        }
        Some(RowTime::new(share(left, waiting), left))
    }

    /// Saves a row that has samples.
    fn finish(&mut self, benchmark: &'static str, row: Row, time: RowTime) -> Option<Row> {
        let title = title(&(benchmark, row.name.clone()));
        if time.has_ended() && !is_measured(&row) {
            eprintln!("  left out: the limit of time is reached");
            self.left_out.push(title);
            return None;
        }
        if time.is_shortened() {
            self.shortened.push(title);
        }
        // A row without samples is measured again by the next run.
        if is_measured(&row)
            && let Err(error) = self.journal.save(benchmark, &row)
        {
            eprintln!("  not saved: {error:#}");
        }
        Some(row)
    }
}

fn title((benchmark, row): &RowName) -> String {
    format!("{benchmark}: {row}")
}

/// The time of a row: more than an equal part, because most rows need less.
fn share(left: Duration, waiting: usize) -> Duration {
    let equal = left / u32::try_from(waiting).unwrap_or(u32::MAX);
    (equal * 3 / 2).min(left)
}

/// Notes the machine in the facts of a row, for rows of several machines in one table.
fn stamped(mut row: Row) -> Row {
    let found = machine::machine();
    if let Some(facts) = row.facts.as_object_mut() {
        let machine = json!({
            "cpu": found["cpu"], "cores": found["cores"], "date": found["date"],
        });
        facts.insert("machine".into(), machine);
    }
    row
}

/// Whether floe, or in a row without floe any variant, has samples.
fn is_measured(row: &Row) -> bool {
    let has_samples = |(_, it): &(String, Measurement)| !it.samples().is_empty();
    let mut measurements = row.measurements.iter();
    match row.measurements.iter().find(|(name, _)| name == FLOE) {
        Some(floe) => has_samples(floe),
        None => measurements.any(has_samples),
    }
}

/// Removes the samples of a round that was ended in its middle.
fn equal_rounds(mut row: Row) -> Row {
    let counts = row.measurements.iter().filter_map(|(_, it)| match it {
        Measurement::Ran(samples) => Some(samples.len()),
        Measurement::Failed(_) => None,
    });
    // The parts of a baseline run as often as the others.
    let least = counts.min().unwrap_or(0);
    for (_, measurement) in &mut row.measurements {
        if let Measurement::Ran(samples) = measurement {
            samples.truncate(least);
        }
    }
    row
}

/// For preparations and reports, which have no limit of their own.
const RESERVE: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests;
