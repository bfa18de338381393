//! Lines on stderr: text, or with `--log-format json` one JSON object a line.
//!
//! Every object has `level`, `event` and `time`. In systemd's journal, every line begins with its
//! priority.

mod journal;
mod style;

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, Ordering};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::times;

use super::verbosity::{ColorChoice, Verbosity};
pub(crate) use style::colored;

/// The format of stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum StderrLines {
    /// Text; on a terminal, progress changes in place.
    Text,
    /// Text without lines that change.
    PlainText,
    /// A JSON object a line.
    Json,
    /// The lines of Nix's `internal-json`.
    NixJson,
}

/// Sets the format of stderr.
pub(crate) fn set_lines(lines: StderrLines) {
    LINES.store(lines as u8, Ordering::Relaxed);
}

fn has_lines(lines: StderrLines) -> bool {
    LINES.load(Ordering::Relaxed) == lines as u8
}

/// Whether stderr holds JSON lines, those of floe or those of Nix.
pub(crate) fn is_json() -> bool {
    has_lines(StderrLines::Json) || is_nix_json()
}

/// Whether stderr holds the lines of Nix's `internal-json`.
pub(crate) fn is_nix_json() -> bool {
    has_lines(StderrLines::NixJson)
}

/// Whether lines on a terminal may change in place.
pub(crate) fn may_change_in_place() -> bool {
    has_lines(StderrLines::Text)
}

/// Sets how much the process prints, and whether in colors.
pub(crate) fn set_output(verbosity: Verbosity, color: ColorChoice) {
    VERBOSITY.store(verbosity as u8, Ordering::Relaxed);
    style::set_color(color);
}

/// Whether lines that need this verbosity are printed.
pub(crate) fn is_verbose(needed: Verbosity) -> bool {
    VERBOSITY.load(Ordering::Relaxed) >= needed as u8
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Info,
    Warning,
    Error,
}

/// Writes a JSON line. `fields` is an object, and its null fields are left out. A quiet process
/// writes no events of its progress.
pub(crate) fn write_event(level: Level, event: &str, fields: Value) {
    if level == Level::Info && event != MESSAGE && !is_verbose(Verbosity::Normal) {
        return;
    }
    if is_nix_json() {
        // Other events are activities there.
        if let Some(message) = fields["message"].as_str() {
            write_nix_message(level, message);
        }
        return;
    }
    let time = times::rfc3339(Timestamp::now());
    let mut line = json!({ "level": level, "event": event, "time": time });
    if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
        let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
        line.extend(fields.map(|(name, value)| match value {
            Value::String(text) => (name, printable(&text).into()),
            value => (name, value),
        }));
    }
    write_lines(level, line.to_string());
}

/// Writes a message as Nix's `internal-json` does.
pub(crate) fn write_nix_message(level: Level, message: &str) {
    // lvlError, lvlWarn and lvlInfo.
    let number = match level {
        Level::Error => 0,
        Level::Warning => 1,
        Level::Info => 3,
    };
    let message = printable(message);
    let action = json!({ "action": "msg", "level": number, "msg": message });
    write_text(format!("@nix {action}"));
}

/// Writes a JSON line about the life of a server, or prints its message.
pub(crate) fn report_event(event: &str, message: &str) {
    if is_json() {
        json_event(event, message)
    } else {
        eprint_line(message)
    }
}

/// Writes a JSON line about the life of a server, which has no line of text.
pub(crate) fn json_event(event: &str, message: &str) {
    if is_json() {
        write_event(Level::Info, event, json!({ "message": message }));
    }
}

impl Level {
    /// The priority of syslog(3).
    fn priority(self) -> u8 {
        match self {
            Level::Error => 3,
            Level::Warning => 4,
            Level::Info => 6,
        }
    }
}

/// The event of lines that have no event of their own.
const MESSAGE: &str = "message";

/// Prints a line on stderr.
pub(crate) fn eprint_line(line: impl std::fmt::Display) {
    if is_json() {
        let fields = json!({ "message": line.to_string() });
        return write_event(Level::Info, MESSAGE, fields);
    }
    write_lines(Level::Info, printable(&line.to_string()));
}

/// Prints an error that has no fields, or whose fields are not wanted.
pub(crate) fn eprint_error(error: impl std::fmt::Display) {
    if is_json() {
        return eprint_line(format_args!("floe: {error}"));
    }
    write_lines(Level::Error, printable(&format!("floe: {error}")));
}

/// Whether stderr is systemd's journal.
pub(crate) fn is_journal() -> bool {
    journal::is_stderr()
}

/// Writes lines, each with its priority if stderr is systemd's journal.
pub(crate) fn write_lines(level: Level, mut lines: String) {
    if level == Level::Info && !is_json() && !is_verbose(Verbosity::Normal) {
        return;
    }
    lines = if is_journal() {
        journal::with_priority(level.priority(), &lines)
    } else {
        colored(level, lines)
    };
    write_text(lines);
}

/// Writes lines as they are.
pub(super) fn write_text(mut lines: String) {
    lines.push('\n');
    // One call keeps the lines of several threads apart. A closed stderr is ignored.
    let _: io::Result<()> = io::stderr().write_all(lines.as_bytes());
}

/// Writes a text with control sequences.
pub(crate) fn write_raw(text: &str) {
    // A closed stderr is ignored.
    let _: io::Result<()> = io::stderr().write_all(text.as_bytes());
}

/// Prints a warning.
pub(crate) fn warn(warning: impl std::fmt::Display) {
    if is_json() {
        let fields = json!({ "message": warning.to_string() });
        return write_event(Level::Warning, "warning", fields);
    }
    write_lines(
        Level::Warning,
        printable(&format!("floe: warning: {warning}")),
    );
}

/// Makes a text safe to show. Errors repeat text of caches, which must not control the terminal,
/// show the text in another order, or fill the screen.
pub(crate) fn printable(text: &str) -> String {
    let mut end = text.len().min(TEXT_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (shown, rest) = text.split_at(end);
    let shown = shown.replace(is_harmful, "\u{fffd}");
    match rest.len() {
        0 => shown,
        len => format!("{shown}… ({len} more bytes)"),
    }
}

/// Whether a character is invisible, or changes the meaning of the characters after it.
fn is_harmful(c: char) -> bool {
    let is_format = matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}');
    is_format || c.is_control() && c != '\n'
}

/// The longest text of a message, in bytes: longer than any list of references.
const TEXT_LEN_MAX: usize = 16 * 1024;

/// A [`Verbosity`].
static VERBOSITY: AtomicU8 = AtomicU8::new(Verbosity::Normal as u8);

/// A [`StderrLines`].
static LINES: AtomicU8 = AtomicU8::new(StderrLines::Text as u8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
        assert_eq!(printable("key\u{202e}eman"), "key\u{fffd}eman");
    }

    #[test]
    fn long_text_is_cut_off() {
        let text = "é".repeat(3 << 20);
        let shown = printable(&text);
        assert!(shown.len() < TEXT_LEN_MAX + 100);
        assert!(shown.ends_with(&format!("… ({} more bytes)", text.len() - TEXT_LEN_MAX)));
    }
}
