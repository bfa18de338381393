//! How a command shows its work. All of it on stderr.

mod bars;
mod json;
mod lines;
mod stderr;
pub(crate) mod trace;

use std::io::{self, IsTerminal as _};

use floe_engine::EventSink;

use bars::Bars;
use json::JsonLines;
pub(crate) use json::{error_fields, error_kind};
use lines::Lines;
pub(crate) use stderr::{Level, eprint_line, is_json, set_json, warn, write_event};

/// The display that fits stderr.
pub(crate) fn progress_display() -> Box<dyn EventSink> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match io::stderr().is_terminal() && !is_dumb && !is_json() {
        true => Box::new(Bars::new()),
        false => line_display(),
    }
}

/// The display that goes with other lines.
pub(crate) fn line_display() -> Box<dyn EventSink> {
    match is_json() {
        true => Box::new(JsonLines::new()),
        false => Box::new(Lines::default()),
    }
}
