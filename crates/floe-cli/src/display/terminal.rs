//! The progress of a copy on a terminal: a few lines that are drawn again and again.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use floe_transfer::{Event, EventSink};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rustix::stdio::stderr;
use rustix::termios::tcgetwinsize;

use super::progress::Progress;
use super::stderr::{Level, colored, printable};
use super::ticker::Ticker;
use super::verbose::VerboseLines;
use crate::messages::copy::{event_line, event_warning, plan};

/// Lines at the end of the screen.
pub(super) struct Terminal {
    shared: Arc<Shared>,
    verbose: VerboseLines,
    /// Draws until it is dropped.
    ticker: Option<Ticker>,
}

struct Shared {
    screen: MultiProgress,
    state: Mutex<State>,
    began: Instant,
}

#[derive(Default)]
struct State {
    progress: Progress,
    lines: Vec<ProgressBar>,
}

impl Terminal {
    pub(super) fn new() -> Terminal {
        let shared = Arc::new(Shared {
            screen: MultiProgress::new(),
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self) {
        let (columns, rows) = size();
        let mut state = self.state();
        let transfers = rows.saturating_sub(2).min(TRANSFERS_MAX);
        let frame = state
            .progress
            .frame(columns, transfers, self.began.elapsed());
        while state.lines.len() > frame.len()
            && let Some(line) = state.lines.pop()
        {
            line.finish_and_clear();
            self.screen.remove(&line);
        }
        while state.lines.len() < frame.len() {
            let line = self
                .screen
                .add(ProgressBar::new_spinner().with_style(style()));
            state.lines.push(line);
        }
        for (line, text) in state.lines.iter().zip(frame) {
            line.set_message(text);
        }
    }

    fn print_line(&self, level: Level, line: &str) {
        let line = colored(level, printable(line));
        let _: io::Result<()> = self.screen.println(line);
    }
}

impl EventSink for Terminal {
    fn event(&self, event: Event<'_>) {
        let shared = &self.shared;
        shared
            .state()
            .progress
            .apply(&event, shared.began.elapsed());
        for line in self.verbose.lines(&event) {
            shared.print_line(Level::Info, &line);
        }
        match event {
            Event::Planned { paths: 0, .. } => {}
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => shared.print_line(Level::Info, &plan(paths, nar_bytes, download_bytes)),
            event => {
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
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Otherwise it could draw again.
        self.ticker = None;
        // An error message must not follow half-drawn lines.
        let _: io::Result<()> = self.shared.screen.clear();
    }
}

/// Returns the columns and rows of the terminal now.
fn size() -> (usize, usize) {
    match tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

fn style() -> ProgressStyle {
    // A test checks the constant template.
    ProgressStyle::with_template(LINE).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

const LINE: &str = "{msg}";

/// Short enough to show that the process is alive.
const INTERVAL: Duration = Duration::from_millis(100);

const TRANSFERS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_template_is_valid() {
        assert!(ProgressStyle::with_template(LINE).is_ok());
    }
}
