//! The progress of a copy: its counts, and the lines that show them.

mod rate;
mod text;

use std::collections::HashMap;
use std::time::Duration;

use floe_format::StorePath;
use floe_transfer::Event;

use rate::Rate;
use text::Amounts;
pub(super) use text::truncated;

/// The counts of a copy. Times are those since its begin.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The known paths and the queries in flight, while the closure is resolved.
    resolving: (usize, usize),
    plan: Option<Plan>,
    /// The paths that were received. They may wait for their registration.
    staged: usize,
    /// The bytes that came from the sources.
    fetched: Rate,
    /// The unpacked bytes, without reused ones.
    unpacked: Rate,
    /// The unpacked bytes of files of this machine.
    reused: u64,
    transfers: HashMap<StorePath, Transfer>,
}

/// The sums of the plans of all rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    paths: usize,
    nar_bytes: u64,
    download_bytes: u64,
}

/// A path that is being received.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    nar_size: u64,
    nar_bytes: u64,
}

impl Progress {
    /// Counts an event.
    pub(super) fn apply(&mut self, event: &Event<'_>, now: Duration) {
        match event {
            Event::Resolving { known, pending } => self.resolving = (*known, *pending),
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => {
                let plan = self.plan.get_or_insert_default();
                plan.paths += paths;
                plan.nar_bytes = plan.nar_bytes.saturating_add(*nar_bytes);
                plan.download_bytes = plan.download_bytes.saturating_add(*download_bytes);
            }
            Event::Started { path, nar_size, .. } => {
                let transfer = Transfer {
                    nar_size: *nar_size,
                    nar_bytes: 0,
                };
                self.transfers.insert((*path).clone(), transfer);
            }
            Event::Fetched { bytes, .. } => {
                self.fetched
                    .add(i64::try_from(*bytes).unwrap_or(i64::MAX), now);
            }
            Event::Progress {
                path,
                nar_bytes,
                is_reused,
            } => {
                if *is_reused {
                    self.reused = self.reused.saturating_add_signed(*nar_bytes);
                } else {
                    self.unpacked.add(*nar_bytes, now)
                }
                if let Some(transfer) = self.transfers.get_mut(*path) {
                    transfer.nar_bytes = transfer.nar_bytes.saturating_add_signed(*nar_bytes);
                }
            }
            Event::Staged { path } => {
                self.staged += 1;
                self.transfers.remove(*path);
            }
            Event::TransferFailed { path } => {
                self.transfers.remove(*path);
            }
            _ => {}
        }
    }

    /// Returns the lines for a terminal with this many columns, none longer: the total first, then
    /// up to `transfers_max` of the largest transfers.
    pub(super) fn frame(&self, columns: usize, transfers_max: usize, now: Duration) -> Vec<String> {
        let mut lines = vec![self.total_line(columns, now)];
        let mut largest: Vec<_> = self.transfers.iter().collect();
        // The order must not change between two frames.
        largest.sort_by(|(path, a), (other, b)| (b.nar_size, path).cmp(&(a.nar_size, other)));
        let shown = largest.into_iter().take(transfers_max);
        lines.extend(shown.map(|(path, transfer)| {
            let amounts = (transfer.nar_bytes, transfer.nar_size);
            text::transfer(path.name(), amounts, columns)
        }));
        lines
    }

    /// Returns the total as a line without a limit.
    pub(super) fn text(&self, now: Duration) -> String {
        match self.amounts(now) {
            Some(amounts) => text::total_text(&amounts),
            None => self.resolving_line(),
        }
    }

    fn total_line(&self, columns: usize, now: Duration) -> String {
        match self.amounts(now) {
            Some(amounts) => text::total(&amounts, columns),
            None => truncated(&self.resolving_line(), columns),
        }
    }

    fn resolving_line(&self) -> String {
        let (known, pending) = self.resolving;
        text::resolving(known, pending, self.fetched.total())
    }

    /// Returns the amounts, if the plan is known.
    fn amounts(&self, now: Duration) -> Option<Amounts> {
        let plan = self.plan?;
        let total = plan.nar_bytes.saturating_sub(self.reused);
        let unpacked = self.unpacked.total();
        Some(Amounts {
            paths: (self.staged, plan.paths),
            fetched: (self.fetched.total(), plan.download_bytes),
            unpacked: (unpacked, total),
            rate: self.fetched.per_second(now),
            rest: self.rest(total.saturating_sub(unpacked), now),
        })
    }

    /// Returns the remaining time. The mean of the last seconds and of the whole copy settles, and
    /// still shows changes.
    fn rest(&self, bytes: u64, now: Duration) -> Option<Duration> {
        if now < REST_AFTER {
            return None;
        }
        let whole = self.unpacked.total() as f64 / now.as_secs_f64();
        let rate = (self.unpacked.per_second(now) + whole) / 2.0;
        let seconds = bytes as f64 / rate;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Before this time, the rate tells little.
const REST_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
