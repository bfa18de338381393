//! The progress of a copy as bars on a terminal.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;
use floe_transfer::{Event, EventSink};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::stderr::printable;
use crate::messages::copy::{event_line, plan};

/// An overall bar, and a bar for each path that is being received.
pub(super) struct Bars {
    screen: MultiProgress,
    overall: ProgressBar,
    paths: Mutex<HashMap<StorePath, ProgressBar>>,
    planned: AtomicUsize,
    finished: AtomicUsize,
}

impl Bars {
    pub(super) fn new() -> Bars {
        let screen = MultiProgress::new();
        let overall = screen.add(ProgressBar::no_length().with_style(style(RESOLVING)));
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

    fn print_line(&self, line: String) {
        let _: io::Result<()> = self.screen.println(printable(&line));
    }

    fn count(&self) {
        let [finished, planned] = [&self.finished, &self.planned].map(|it| it.load(Relaxed));
        let message = format!("{finished}/{planned} paths");
        self.overall.set_message(message);
    }
}

impl EventSink for Bars {
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
                self.planned.fetch_add(paths, Relaxed);
                if paths > 0 {
                    self.print_line(plan(paths, nar_bytes, download_bytes));
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
            Event::Staged { path } => {
                self.finished.fetch_add(1, Relaxed);
                self.count();
                if let Some(bar) = self.paths().remove(path) {
                    bar.finish_and_clear();
                    self.screen.remove(&bar);
                }
            }
            other => {
                if let Some(line) = event_line(&other) {
                    self.print_line(line);
                }
            }
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        // An error message must not follow half-drawn bars.
        let _: io::Result<()> = self.screen.clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // A test checks the constant templates.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const RESOLVING: &str = "{spinner} {msg}";
const OVERALL: &str =
    "{wide_bar} {bytes}/{total_bytes} {msg} {bytes_per_sec} {elapsed} ({eta} left)";
const PATH: &str = "  {bytes:>10}/{total_bytes:10} {wide_msg}";

/// The interval of the spinner, short enough to show that the process is alive.
const TICK: std::time::Duration = std::time::Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_templates_are_valid() {
        for template in [RESOLVING, OVERALL, PATH] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
