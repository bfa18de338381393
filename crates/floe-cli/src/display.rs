//! Progress, warnings and errors on stderr.

mod bars;
mod json;
mod lines;
mod repeat_limit;
mod stderr;
pub(crate) mod trace;

use std::io::{self, IsTerminal as _};

use floe_transfer::EventSink;

use bars::Bars;
use json::JsonLines;
pub(crate) use json::error_fields;
use lines::Lines;
pub(crate) use repeat_limit::RepeatLimit;
pub(crate) use stderr::{
    Level, eprint_error, eprint_line, is_journal, is_json, json_event, report_event, set_json,
    warn, write_event, write_lines,
};

/// Returns the display of progress that fits stderr: bars on a terminal, else lines.
pub(crate) fn progress_display() -> Box<dyn EventSink> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match io::stderr().is_terminal() && !is_dumb && !is_json() {
        true => Box::new(Bars::new()),
        false => line_display(),
    }
}

/// Returns a display that prints lines, which other lines do not disturb.
pub(crate) fn line_display() -> Box<dyn EventSink> {
    match is_json() {
        true => Box::new(JsonLines::new()),
        false => Box::new(Lines::default()),
    }
}
