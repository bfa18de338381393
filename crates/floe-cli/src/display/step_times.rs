//! `--stats`: the times of the steps of a copy.

use std::time::{Duration, Instant};

use floe_transfer::{Event, ReceiveTimes};
use parking_lot::Mutex;

use super::elapsed::Elapsed;
use crate::messages::counted;

/// Adds up the times of all steps.
#[derive(Debug)]
pub(crate) struct StepTimes {
    began: Instant,
    sums: Mutex<Sums>,
}

/// The times of a copy. Those of receiving are sums over all workers.
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

    /// Returns the lines about the sums so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.sums.lock().lines(self.began.elapsed())
    }

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

impl Sums {
    fn lines(&self, whole: Duration) -> Vec<String> {
        let times = self.receive;
        let connections = match self.connections {
            0 => "no connection".to_owned(),
            number => format!(
                "{}, with TLS if the URL demands it",
                counted(number, "connection")
            ),
        };
        let steps = [
            ("connect", self.connect, connections),
            ("query", self.query, "until all paths were known".into()),
            ("fetch", times.fetch, "workers waited for bytes".into()),
            ("decode", times.decode, "all workers".into()),
            ("hash", times.hash, "all workers".into()),
            ("write", times.write, "all workers".into()),
            ("register", self.register, "database and renames".into()),
        ];
        let mut lines: Vec<String> = steps
            .into_iter()
            .map(|(name, time, what)| format!("{name:9} {:>9}  {what}", Elapsed(time).to_string()))
            .collect();
        lines.push(format!("whole     {:>9}", Elapsed(whole).to_string()));
        lines.push(self.limit());
        lines
    }

    /// Tells which resource took most of the time.
    fn limit(&self) -> String {
        let times = self.receive;
        let resources = [
            // A source without a connection is a directory.
            (
                if self.connections == 0 {
                    "source"
                } else {
                    "network"
                },
                times.fetch,
            ),
            ("processor", times.decode + times.hash),
            ("disk", times.write + self.register),
        ];
        let sum: Duration = resources.iter().map(|(_, time)| *time).sum();
        let largest = resources.into_iter().max_by_key(|(_, time)| *time);
        match largest {
            Some((name, time)) if !sum.is_zero() => {
                let percent = time.as_secs_f64() / sum.as_secs_f64() * 100.0;
                format!("the {name} was the limit: {percent:.0} % of the time of the workers")
            }
            _ => "nothing was transferred".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_part_of_the_time_names_the_limit() {
        let seconds = Duration::from_secs;
        let mut stats = Sums {
            connections: 5,
            connect: seconds(1),
            query: seconds(1),
            receive: ReceiveTimes {
                fetch: seconds(6),
                decode: seconds(1),
                hash: seconds(1),
                write: seconds(1),
            },
            register: seconds(1),
            committing: None,
        };
        let limit = |sums: &Sums| sums.lines(seconds(8)).pop().unwrap();
        assert!(limit(&stats).starts_with("the network was the limit: 60 %"));
        stats.connections = 0;
        assert!(limit(&stats).starts_with("the source was the limit: 60 %"));
        stats.receive.hash = seconds(10);
        assert!(limit(&stats).starts_with("the processor was the limit"));
        stats.register = seconds(20);
        assert!(limit(&stats).starts_with("the disk was the limit"));
        stats.receive = ReceiveTimes::default();
        stats.register = Duration::ZERO;
        assert_eq!(limit(&stats), "nothing was transferred");
    }
}
