//! The lines of `--stats`.

use std::time::Duration;

use floe_transfer::ReceiveTimes;

use super::{Elapsed, counted};

/// The times of a copy. Those of receiving are sums over all workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stats {
    pub(crate) connections: usize,
    pub(crate) connect: Duration,
    pub(crate) query: Duration,
    pub(crate) receive: ReceiveTimes,
    pub(crate) register: Duration,
    pub(crate) whole: Duration,
}

impl Stats {
    /// Returns the lines for users.
    pub(crate) fn lines(&self) -> Vec<String> {
        let times = self.receive;
        let connections = match self.connections {
            0 => "no connection".to_owned(),
            number => format!("{}, with TLS", counted(number, "connection")),
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
        lines.push(format!("whole     {:>9}", Elapsed(self.whole).to_string()));
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
        let mut stats = Stats {
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
            whole: seconds(8),
        };
        let limit = |stats: &Stats| stats.lines().pop().unwrap();
        assert!(limit(&stats).starts_with("the network was the limit: 60 %"));
        let local = Stats {
            connections: 0,
            ..stats
        };
        assert!(limit(&local).starts_with("the source was the limit: 60 %"));
        stats.receive.hash = seconds(10);
        assert!(limit(&stats).starts_with("the processor was the limit"));
        stats.register = seconds(20);
        assert!(limit(&stats).starts_with("the disk was the limit"));
        stats.receive = ReceiveTimes::default();
        stats.register = Duration::ZERO;
        assert_eq!(limit(&stats), "nothing was transferred");
    }
}
