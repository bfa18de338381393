//! The progress of a copy as plain lines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_transfer::{Event, EventSink};
use parking_lot::Mutex;

use super::event_lines::{event_line, event_warning};
use super::progress::Progress;
use super::stderr::{eprint_error, eprint_line, warn};
use super::ticker::Ticker;
use super::verbose::VerboseLines;

/// Prints a line every few seconds, and one for each failure.
pub(super) struct Lines {
    shared: Arc<Shared>,
    verbose: VerboseLines,
    /// Prints until it is dropped.
    _ticker: Option<Ticker>,
}

struct Shared {
    progress: Mutex<Progress>,
    began: Instant,
}

impl Lines {
    pub(super) fn new() -> Lines {
        let shared = Arc::new(Shared {
            progress: Mutex::default(),
            began: Instant::now(),
        });
        let printed = shared.clone();
        let print = move || eprint_line(printed.progress.lock().text(printed.began.elapsed()));
        Lines {
            shared,
            verbose: VerboseLines::default(),
            _ticker: Ticker::start(INTERVAL, print),
        }
    }
}

impl EventSink for Lines {
    fn event(&self, event: Event<'_>) {
        let shared = &self.shared;
        shared.progress.lock().apply(&event, shared.began.elapsed());
        self.verbose.lines(&event).into_iter().for_each(eprint_line);
        print_event(event);
    }
}

/// Prints the events outside of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventLines;

impl EventSink for EventLines {
    fn event(&self, event: Event<'_>) {
        print_event(event);
    }
}

fn print_event(event: Event<'_>) {
    match event {
        Event::Failed { error } => eprint_error(error),
        other => match event_warning(&other) {
            Some(warning) => warn(warning),
            None => event_line(&other).into_iter().for_each(eprint_line),
        },
    }
}

/// A log of a long copy stays readable.
const INTERVAL: Duration = Duration::from_secs(5);
