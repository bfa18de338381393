//! How a move is shown: bars on a terminal, plain lines elsewhere. All of it on stderr.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_engine::{Error, Event, Outcome, Reporter, Shortage};
use floe_format::StorePath;
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::log::{self, JsonLines, Level};

/// The display that fits stderr.
pub(crate) fn display() -> Box<dyn Reporter> {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    match io::stderr().is_terminal() && !is_dumb && !log::speaks_json() {
        true => Box::new(Bars::new()),
        false => lines(),
    }
}

/// The display that goes with other lines.
pub(crate) fn lines() -> Box<dyn Reporter> {
    match log::speaks_json() {
        true => Box::new(JsonLines::new()),
        false => Box::new(Lines::default()),
    }
}

/// Prints a line on stderr.
pub(crate) fn say(line: impl std::fmt::Display) {
    if log::speaks_json() {
        return log::write(
            Level::Info,
            "message",
            json!({ "message": line.to_string() }),
        );
    }
    // Nothing can be done about a closed stderr.
    let _: io::Result<()> = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}

/// Says what is not as it should be, though the work goes on.
pub(crate) fn warn(warning: impl std::fmt::Display) {
    match log::speaks_json() {
        true => log::write(
            Level::Warning,
            "warning",
            json!({ "message": warning.to_string() }),
        ),
        false => say(format_args!("floe: warning: {warning}")),
    }
}

/// Errors repeat what a cache has sent, and that must not steer the terminal.
fn printable(line: &str) -> String {
    line.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

/// A line for each path and each failure.
#[derive(Debug, Default)]
struct Lines {
    planned: AtomicUsize,
    finished: AtomicUsize,
}

impl Reporter for Lines {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Planned { paths: 0, .. } => {}
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => {
                self.planned.fetch_add(paths, Ordering::Relaxed);
                say(plan(paths, nar_bytes, download_bytes));
            }
            Event::Finished { path } => {
                let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
                say(format_args!(
                    "[{finished}/{}] {path}",
                    self.planned.load(Ordering::Relaxed)
                ));
            }
            Event::Scarce { shortage } => warn(scarce(shortage)),
            Event::Retrying { path, error } => say(retrying(path, error)),
            Event::NotReused { path, place, error } => warn(not_reused(path, place, error)),
            Event::DamagedLink { path, link } => warn(damaged_link(path, link)),
            Event::Failed { error } => say(format_args!("floe: {error}")),
            Event::Left { paths } => say(left(paths)),
            Event::Waiting { path } => say(waiting(path)),
            Event::WaitingFor { what } => say(waiting_for(what)),
            _ => {}
        }
    }
}

/// An overall bar, and one for each path in flight.
struct Bars {
    screen: MultiProgress,
    overall: ProgressBar,
    paths: Mutex<HashMap<StorePath, ProgressBar>>,
    planned: AtomicUsize,
    finished: AtomicUsize,
}

impl Bars {
    fn new() -> Bars {
        let screen = MultiProgress::new();
        let overall = screen.add(ProgressBar::no_length().with_style(style(WALKING)));
        overall.set_message("resolving");
        overall.enable_steady_tick(TICK);
        Bars {
            screen,
            overall,
            paths: Mutex::default(),
            planned: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        }
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<StorePath, ProgressBar>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, line: String) {
        let _: io::Result<()> = self.screen.println(printable(&line));
    }

    fn count(&self) {
        let (finished, planned) = (
            self.finished.load(Ordering::Relaxed),
            self.planned.load(Ordering::Relaxed),
        );
        self.overall
            .set_message(format!("{finished}/{planned} paths"));
    }
}

impl Reporter for Bars {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Resolving { known, pending } => {
                self.overall
                    .set_message(format!("resolving: {known} paths, {pending} to ask"));
            }
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => {
                self.planned.fetch_add(paths, Ordering::Relaxed);
                if paths > 0 {
                    self.say(plan(paths, nar_bytes, download_bytes));
                }
                self.overall.set_style(style(OVERALL));
                let before = self.overall.length().unwrap_or(0);
                self.overall.set_length(before.saturating_add(nar_bytes));
                self.overall.reset_eta();
                self.count();
            }
            Event::Started { path, nar_size } => {
                let bar = ProgressBar::new(nar_size).with_style(style(PATH));
                let bar = self.screen.add(bar).with_message(path.name().to_owned());
                self.paths().insert(path.clone(), bar);
            }
            Event::Progress { path, nar_bytes } => {
                let bytes = nar_bytes.unsigned_abs();
                let paths = self.paths();
                for bar in [Some(&self.overall), paths.get(path)].into_iter().flatten() {
                    match nar_bytes >= 0 {
                        true => bar.inc(bytes),
                        false => bar.dec(bytes),
                    }
                }
            }
            Event::Finished { path } => {
                self.finished.fetch_add(1, Ordering::Relaxed);
                self.count();
                if let Some(bar) = self.paths().remove(path) {
                    bar.finish_and_clear();
                    self.screen.remove(&bar);
                }
            }
            Event::Scarce { shortage } => {
                self.say(format!("floe: warning: {}", scarce(shortage)));
            }
            Event::Retrying { path, error } => self.say(retrying(path, error)),
            Event::NotReused { path, place, error } => {
                self.say(format!("floe: warning: {}", not_reused(path, place, error)));
            }
            Event::DamagedLink { path, link } => {
                self.say(format!("floe: warning: {}", damaged_link(path, link)));
            }
            Event::Failed { error } => self.say(format!("floe: {error}")),
            Event::Left { paths } => self.say(left(paths)),
            Event::Waiting { path } => self.say(waiting(path)),
            Event::WaitingFor { what } => self.say(waiting_for(what)),
            _ => {}
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        // A failure leaves no half-drawn bars behind its words.
        let _: io::Result<()> = self.screen.clear();
    }
}

/// What came of `--reuse`, and of what a run had left that ended early.
pub(crate) fn taken(outcome: &Outcome) -> String {
    let things = if outcome.taken == 1 { "path" } else { "paths" };
    format!(
        "{} {things} taken from this machine, {} unpacked, instead of being fetched",
        outcome.taken,
        HumanBytes(outcome.taken_nar_bytes)
    )
}

/// What an interrupted move has not fetched in vain.
fn left(paths: usize) -> String {
    let (things, them) = match paths {
        1 => ("path has", "it"),
        _ => ("paths have", "them"),
    };
    format!(
        "{paths} {things} come and cannot be valid yet: the next run that wants {them} takes {them}"
    )
}

/// Why a path is not taken from a store that has it.
pub(crate) fn not_reused(path: &StorePath, place: &Path, error: &Error) -> String {
    let place = place.display();
    format!("{path} is not taken from {place}, but brought from elsewhere: {error}")
}

/// What a user should know of damage that this move has found.
pub(crate) fn damaged_link(path: &StorePath, link: &str) -> String {
    format!(
        "a file of {path} is whole, but .links/{link} was not and was replaced; \
         `floe verify` finds the paths that have the same damage"
    )
}

/// What is said of too little room, where the work goes on.
pub(crate) fn scarce(shortage: &Shortage) -> String {
    match shortage.is_certain {
        true => format!("{shortage}; it cannot fit"),
        false => format!("{shortage}; it may not fit"),
    }
}

fn retrying(path: Option<&StorePath>, error: &Error) -> String {
    match path {
        Some(path) => format!("retrying {path}: {error}"),
        None => format!("retrying: {error}"),
    }
}

/// For what this process waits that another one has.
pub(crate) fn waiting_for(what: &str) -> String {
    format!("floe: waiting for {what}")
}

fn waiting(path: &StorePath) -> String {
    format!("waiting for whoever has locked {path}")
}

fn plan(paths: usize, nar_bytes: u64, download_bytes: u64) -> String {
    let unpacked = HumanBytes(nar_bytes);
    let things = if paths == 1 { "path" } else { "paths" };
    match download_bytes {
        0 => format!("moving {paths} {things}, {unpacked} unpacked"),
        bytes => format!(
            "moving {paths} {things}: {} to fetch, {unpacked} unpacked",
            HumanBytes(bytes)
        ),
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants, tried by the test below.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const WALKING: &str = "{spinner} {msg}";
const OVERALL: &str =
    "{wide_bar} {bytes}/{total_bytes} {msg} {bytes_per_sec} {elapsed} ({eta} left)";
const PATH: &str = "  {bytes:>10}/{total_bytes:10} {wide_msg}";

/// Often enough to look alive.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
    }

    #[test]
    fn the_templates_are_templates() {
        for template in [WALKING, OVERALL, PATH] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
