//! Progress, warnings and errors on stderr.

mod elapsed;
mod event_lines;
mod internal_json;
mod json;
mod lines;
mod progress;
mod repeat_limit;
mod status_line;
mod stderr;
mod step_times;
mod terminal;
mod ticker;
pub(crate) mod trace;
mod verbose;
mod verbosity;

use floe_format::StoreDir;
use floe_transfer::{Event, EventSink};
use parking_lot::RwLock;

pub(crate) use elapsed::Elapsed;
use internal_json::InternalJson;
pub(crate) use internal_json::set_target;
use json::JsonLines;
pub(crate) use json::error_fields;
use lines::{EventLines, Lines};
pub(crate) use repeat_limit::RepeatLimit;
pub(crate) use status_line::PathProgress;
use stderr::is_nix_json;
pub(crate) use stderr::{
    Level, StderrLines, eprint_error, eprint_line, is_journal, is_json, is_verbose, json_event,
    report_event, set_lines, set_output, warn, write_event, write_lines,
};
pub(crate) use step_times::StepTimes;
use terminal::Terminal;
pub(crate) use verbosity::{ColorChoice, Verbosity};

/// Shows events on stderr: lines, and the progress from the beginning of a copy to its end.
/// [`Event::Ended`] removes the bars, so that they do not mix with later lines.
#[derive(Default)]
pub(crate) struct Display(RwLock<Option<Box<dyn EventSink>>>);

impl EventSink for Display {
    fn event(&self, event: Event<'_>) {
        let progress = match event {
            Event::Begun { store_dir } => Some(progress_display(store_dir)),
            Event::Ended => None,
            event => {
                return match &*self.0.read() {
                    Some(progress) => progress.event(event),
                    None => line_display().event(event),
                };
            }
        };
        *self.0.write() = progress;
    }
}

/// Returns the display of progress that fits stderr: lines that change on a terminal, else lines
/// every few seconds.
fn progress_display(store_dir: &StoreDir) -> Box<dyn EventSink> {
    let is_quiet = !is_verbose(Verbosity::Normal);
    match terminal::is_interactive() && !is_json() && !is_quiet {
        true => Box::new(Terminal::new()),
        false if is_nix_json() => Box::new(InternalJson::new(store_dir)),
        false if is_json() => Box::new(JsonLines::new()),
        false if is_quiet => Box::new(EventLines),
        false => Box::new(Lines::new()),
    }
}

/// Writes events outside of a copy as Nix's messages.
struct NixMessages;

impl EventSink for NixMessages {
    fn event(&self, event: Event<'_>) {
        internal_json::message(&event);
    }
}

/// Returns a display for events outside of a copy.
fn line_display() -> Box<dyn EventSink> {
    match () {
        () if is_nix_json() => Box::new(NixMessages),
        () if is_json() => Box::new(JsonLines::new()),
        () => Box::new(EventLines),
    }
}
