//! One line of progress of a command that is not a copy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use floe_transfer::{Cancel, Size};
use parking_lot::Mutex;

use super::progress::truncated;
use super::stderr::{eprint_line, is_json, is_verbose, write_raw};
use super::terminal::{Block, MARGIN, is_interactive, size};
use super::ticker::Ticker;
use super::verbosity::Verbosity;

/// A line that changes in place on a terminal, and is printed every few seconds elsewhere. Dropping
/// the value removes it.
struct StatusLine {
    ticker: Option<Ticker>,
    block: Option<Arc<Mutex<Block>>>,
}

impl StatusLine {
    /// Shows what `text` returns, if anything.
    fn start(text: impl Fn() -> Option<String> + Send + 'static) -> StatusLine {
        if is_json() || !is_verbose(Verbosity::Normal) {
            return StatusLine {
                ticker: None,
                block: None,
            };
        }
        if !is_interactive() {
            let print = move || text().into_iter().for_each(eprint_line);
            return StatusLine {
                ticker: Ticker::start(LINE_INTERVAL, print),
                block: None,
            };
        }
        let block: Arc<Mutex<Block>> = Arc::default();
        let drawn = block.clone();
        let draw = move || {
            let (columns, _) = size();
            let frame = text().map(|text| truncated(&text, columns.saturating_sub(MARGIN)));
            let mut block = drawn.lock();
            write_raw(&block.draw(frame.into_iter().collect(), columns));
        };
        StatusLine {
            ticker: Ticker::start(DRAW_INTERVAL, draw),
            block: Some(block),
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        // Otherwise it could draw again.
        self.ticker = None;
        if let Some(block) = &self.block {
            let (columns, _) = size();
            let mut block = block.lock();
            write_raw(&block.clear(columns));
        }
    }
}

/// The paths that a command has processed, and all of them, with their NAR sizes. Shows them in a
/// line, and stops the work when the user interrupts it.
pub(crate) struct PathProgress {
    counts: Arc<Counts>,
    cancel: Cancel,
    _line: StatusLine,
}

#[derive(Default)]
struct Counts {
    paths: (AtomicU64, AtomicU64),
    nar_bytes: (AtomicU64, AtomicU64),
}

impl PathProgress {
    /// `participle` tells what happens to the paths, such as `deleted`.
    pub(crate) fn start(cancel: Cancel, participle: &'static str) -> PathProgress {
        let counts: Arc<Counts> = Arc::default();
        let shown = counts.clone();
        PathProgress {
            _line: StatusLine::start(move || shown.line(participle)),
            counts,
            cancel,
        }
    }

    /// Sets the sums of all paths.
    pub(crate) fn set_total(&self, paths: u64, nar_bytes: u64) {
        self.counts.paths.1.store(paths, Ordering::Relaxed);
        self.counts.nar_bytes.1.store(nar_bytes, Ordering::Relaxed);
    }

    /// Counts a path that is done.
    pub(crate) fn add(&self, nar_bytes: u64) {
        self.counts.paths.0.fetch_add(1, Ordering::Relaxed);
        self.counts
            .nar_bytes
            .0
            .fetch_add(nar_bytes, Ordering::Relaxed);
    }

    /// Whether the user has not interrupted the work.
    pub(crate) fn should_continue(&self) -> bool {
        !self.cancel.is_raised()
    }
}

impl Counts {
    /// Returns the line, once the sums are known.
    fn line(&self, participle: &str) -> Option<String> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (done, all) = (load(&self.paths.0), load(&self.paths.1));
        let (done_size, size) = (Size(load(&self.nar_bytes.0)), Size(load(&self.nar_bytes.1)));
        (all > 0).then(|| format!("{participle} {done} of {all} paths ({done_size} of {size})"))
    }
}

/// Short enough to show that the process is alive.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// A log of a long command stays readable.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
