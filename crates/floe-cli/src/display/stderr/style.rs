//! Colors of lines on stderr.

use std::env;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::verbosity::ColorChoice;
use super::Level;

/// Colors the words before the message of a warning or an error.
pub(crate) fn colored(level: Level, line: String) -> String {
    if !IS_COLORED.load(Ordering::Relaxed) {
        return line;
    }
    let (prefix, color) = match level {
        Level::Info => return line,
        Level::Warning => ("floe: warning:", YELLOW),
        Level::Error => ("floe:", RED),
    };
    match line.strip_prefix(prefix) {
        Some(message) => format!("{color}{prefix}{RESET}{message}"),
        None => line,
    }
}

pub(super) fn set_color(choice: ColorChoice) {
    let is_colored = match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_color_terminal(),
    };
    IS_COLORED.store(is_colored, Ordering::Relaxed);
}

/// Whether stderr is a terminal on which the user wants colors (https://no-color.org).
fn is_color_terminal() -> bool {
    let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    !is_refused && !is_dumb && io::stderr().is_terminal()
}

static IS_COLORED: AtomicBool = AtomicBool::new(false);

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const RESET: &str = "\x1b[0m";
