//! `--stats`: the times of the steps of a copy.

use std::time::{Duration, Instant};

use floe_transfer::{Event, ReceiveTimes};
use parking_lot::Mutex;

use crate::messages::stats::Stats;

/// Adds up the times of all steps.
#[derive(Debug)]
pub(crate) struct StepTimes {
    began: Instant,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    connections: usize,
    connect: Duration,
    /// The time until the plan was complete.
    query: Duration,
    receive: ReceiveTimes,
    register: Duration,
    /// When the current commit began.
    committing: Option<Instant>,
}

impl StepTimes {
    pub(crate) fn new() -> StepTimes {
        StepTimes {
            began: Instant::now(),
            sums: Mutex::default(),
        }
    }

    /// Returns the sums so far.
    pub(crate) fn stats(&self) -> Stats {
        let sums = self.sums.lock();
        Stats {
            connections: sums.connections,
            connect: sums.connect,
            query: sums.query,
            receive: sums.receive,
            register: sums.register,
            whole: self.began.elapsed(),
        }
    }
}

impl StepTimes {
    /// Adds the time of an event.
    pub(crate) fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Connected { time } => {
                let mut sums = self.sums.lock();
                sums.connections += 1;
                sums.connect += *time;
            }
            Event::Planned { .. } => self.sums.lock().query = self.began.elapsed(),
            Event::Received { times, .. } => self.sums.lock().receive.add(*times),
            Event::Committing { .. } => {
                self.sums.lock().committing.get_or_insert_with(Instant::now);
            }
            Event::Registered { .. } => {
                let mut sums = self.sums.lock();
                if let Some(began) = sums.committing.take() {
                    sums.register += began.elapsed();
                }
            }
            _ => {}
        }
    }
}
