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
pub(crate) use json::{fields, kind};
use lines::Lines;
pub(crate) use stderr::{Level, say, speak_json, speaks_json, warn, write};

/// The display that fits stderr.
pub(crate) fn display() -> Box<dyn EventSink> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match io::stderr().is_terminal() && !is_dumb && !speaks_json() {
        true => Box::new(Bars::new()),
        false => lines(),
    }
}

/// The display that goes with other lines.
pub(crate) fn lines() -> Box<dyn EventSink> {
    match speaks_json() {
        true => Box::new(JsonLines::new()),
        false => Box::new(Lines::default()),
    }
}
