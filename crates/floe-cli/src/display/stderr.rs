//! Lines on stderr: text, or with `--log-format json` one JSON object a line.
//!
//! Every object has `level`, `event` and `time`.

mod time;

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use serde::Serialize;
use serde_json::{Value, json};

/// Switches stderr to JSON lines.
pub(crate) fn set_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Whether stderr holds JSON lines.
pub(crate) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Info,
    Warning,
    Error,
}

/// Writes a JSON line. `fields` is an object, and its null fields are left out.
pub(crate) fn write_event(level: Level, event: &str, fields: Value) {
    let time = time::utc(SystemTime::now());
    let mut line = json!({ "level": level, "event": event, "time": time });
    if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
        line.extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
    }
    // One call for each line keeps the lines of several threads apart. A closed stderr is ignored.
    let text = format!("{line}\n");
    let _: io::Result<()> = io::stderr().write_all(text.as_bytes());
}

/// Prints a line on stderr.
pub(crate) fn eprint_line(line: impl std::fmt::Display) {
    if is_json() {
        let fields = json!({ "message": line.to_string() });
        return write_event(Level::Info, "message", fields);
    }
    // A closed stderr is ignored.
    let _: io::Result<()> = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}

/// Prints a warning.
pub(crate) fn warn(warning: impl std::fmt::Display) {
    if is_json() {
        let fields = json!({ "message": warning.to_string() });
        return write_event(Level::Warning, "warning", fields);
    }
    eprint_line(format_args!("floe: warning: {warning}"));
}

/// Replaces control characters: errors repeat text of caches, which must not control the terminal.
pub(crate) fn printable(line: &str) -> String {
    line.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

static IS_JSON: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
    }
}
