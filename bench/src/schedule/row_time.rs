//! The time of one row under a limit.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// The time of a row. The default has no limit.
#[derive(Debug)]
pub(crate) struct RowTime {
    began: Instant,
    share: Option<Duration>,
    /// Ends the running command and the row.
    stop: Arc<AtomicBool>,
    is_shortened: Cell<bool>,
    /// Ends the thread that waits for the limit, when it is dropped.
    _watcher: Option<Sender<()>>,
}

impl Default for RowTime {
    fn default() -> RowTime {
        RowTime {
            began: Instant::now(),
            share: None,
            stop: Arc::default(),
            is_shortened: Cell::new(false),
            _watcher: None,
        }
    }
}

impl RowTime {
    /// After its share, a row ends with the round. After `left`, it ends at once.
    pub(super) fn new(share: Duration, left: Duration) -> RowTime {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        let raised = stop.clone();
        thread::spawn(move || {
            if receiver.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                raised.store(true, Ordering::Relaxed);
            }
        });
        RowTime {
            share: Some(share),
            stop,
            _watcher: Some(sender),
            ..RowTime::default()
        }
    }

    /// Raised when the row must end.
    pub(crate) fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Whether the row must end.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends the row if it has had its share. Rounds that do not count are not in `done`.
    pub(crate) fn after_round(&self, done: usize, wanted: usize) {
        let is_over = |share| is_over(self.began.elapsed(), share, done);
        if done < wanted && self.share.is_some_and(is_over) {
            self.is_shortened.set(true);
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the row has fewer rounds than wanted.
    pub(super) fn is_shortened(&self) -> bool {
        self.is_shortened.get() || self.has_ended()
    }
}

/// With an odd number of rounds the median is a measured value. Fewer than three say little.
fn is_over(elapsed: Duration, share: Duration, done: usize) -> bool {
    let enough = if elapsed >= share * 2 { 1 } else { 3 };
    elapsed >= share && done >= enough && !done.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_ends_after_its_share_with_an_odd_number_of_rounds() {
        let seconds = Duration::from_secs;
        for (elapsed, done, expected) in [
            (9, 3, false),
            (10, 1, false),
            (10, 2, false),
            (10, 3, true),
            (10, 4, false),
            (20, 0, false),
            (20, 1, true),
        ] {
            let found = is_over(seconds(elapsed), seconds(10), done);
            assert_eq!(found, expected, "{done} rounds in {elapsed} s");
        }
    }

    #[test]
    fn row_without_limit_never_ends() {
        let time = RowTime::default();
        time.after_round(3, 7);
        assert!(!time.has_ended() && !time.is_shortened());
    }

    #[test]
    fn row_without_time_ends_after_a_round() {
        let time = RowTime::new(Duration::ZERO, Duration::from_secs(600));
        time.after_round(7, 7);
        assert!(!time.has_ended(), "all rounds are done");
        time.after_round(1, 7);
        assert!(time.has_ended() && time.is_shortened());
    }
}
