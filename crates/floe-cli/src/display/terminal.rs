//! The progress of a copy on a terminal: a few lines that are drawn again and again.
//!
//! The lines end before the last columns, so that the `^C` that a terminal shows does not wrap.

mod block;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_transfer::{Event, EventSink};
use parking_lot::Mutex;
use rustix::stdio::stderr;
use rustix::termios::tcgetwinsize;

use super::event_lines::{event_line, event_warning};
use super::progress::Progress;
use super::stderr::{Level, colored, may_change_in_place, printable, write_raw};
use super::ticker::Ticker;
use super::verbose::VerboseLines;
pub(super) use block::Block;

/// Lines at the end of the screen.
pub(super) struct Terminal {
    shared: Arc<Shared>,
    verbose: VerboseLines,
    /// Draws until it is dropped.
    ticker: Option<Ticker>,
}

struct Shared {
    state: Mutex<State>,
    began: Instant,
}

#[derive(Default)]
struct State {
    progress: Progress,
    block: Block,
}

impl Terminal {
    pub(super) fn new() -> Terminal {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            began: Instant::now(),
        });
        let drawn = shared.clone();
        Terminal {
            ticker: Ticker::start(INTERVAL, move || drawn.draw()),
            shared,
            verbose: VerboseLines::default(),
        }
    }
}

impl Shared {
    fn draw(&self) {
        let (columns, rows) = size();
        let mut state = self.state.lock();
        let transfers = rows.saturating_sub(2).min(TRANSFERS_MAX);
        let width = columns.saturating_sub(MARGIN);
        let frame = state.progress.frame(width, transfers, self.began.elapsed());
        write_raw(&state.block.draw(frame, columns));
    }

    fn print_line(&self, level: Level, line: &str) {
        let (columns, _) = size();
        let line = colored(level, printable(line));
        write_raw(&self.state.lock().block.print_above(&line, columns));
    }
}

impl EventSink for Terminal {
    fn event(&self, event: Event<'_>) {
        let shared = &self.shared;
        shared
            .state
            .lock()
            .progress
            .apply(&event, shared.began.elapsed());
        for line in self.verbose.lines(&event) {
            shared.print_line(Level::Info, &line);
        }
        let level = match &event {
            Event::Failed { .. } => Level::Error,
            event if event_warning(event).is_some() => Level::Warning,
            _ => Level::Info,
        };
        if let Some(line) = event_line(&event) {
            shared.print_line(level, &line);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Otherwise it could draw again.
        self.ticker = None;
        // A message must not follow half-drawn lines.
        let (columns, _) = size();
        write_raw(&self.shared.state.lock().block.clear(columns));
    }
}

/// Whether stderr is a terminal on which lines can change in place.
pub(super) fn is_interactive() -> bool {
    if !may_change_in_place() {
        return false;
    }
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// Returns the columns and rows of the terminal now.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Short enough to show that the process is alive.
const INTERVAL: Duration = Duration::from_millis(100);

const TRANSFERS_MAX: usize = 3;

/// The columns that stay empty at the end of each line.
pub(super) const MARGIN: usize = 3;
