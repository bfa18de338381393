//! The progress of a copy as bars on a terminal.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use floe_format::StorePath;
use floe_transfer::{Event, EventSink};
use indicatif::{
    HumanBytes, HumanDuration, MultiProgress, ProgressBar, ProgressState, ProgressStyle,
};

use super::stderr::printable;
use crate::messages::copy::{event_line, plan};

/// An overall bar, and a bar for each path that is being received.
pub(super) struct Bars {
    screen: MultiProgress,
    overall: ProgressBar,
    /// The bytes that are not reused. Never drawn: only their rate and their remaining time are.
    transferred: ProgressBar,
    paths: Mutex<HashMap<StorePath, ProgressBar>>,
    planned: AtomicUsize,
    finished: AtomicUsize,
}

impl Bars {
    pub(super) fn new() -> Bars {
        let screen = MultiProgress::new();
        let transferred = ProgressBar::hidden();
        let overall = screen.add(ProgressBar::no_length().with_style(style(RESOLVING)));
        overall.set_message("resolving");
        overall.enable_steady_tick(TICK);
        Bars {
            screen,
            overall,
            transferred,
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
                self.overall.set_style(overall_style(&self.transferred));
                for bar in [&self.overall, &self.transferred] {
                    let before = bar.length().unwrap_or(0);
                    bar.set_length(before.saturating_add(nar_bytes));
                    bar.reset_eta();
                }
                self.count();
            }
            Event::Started { path, nar_size } => {
                let bar = ProgressBar::new(nar_size).with_style(style(PATH));
                let bar = self.screen.add(bar).with_message(path.name().to_owned());
                self.paths().insert(path.clone(), bar);
            }
            Event::Progress {
                path,
                nar_bytes,
                is_reused,
            } => {
                let paths = self.paths();
                for bar in [Some(&self.overall), paths.get(path)].into_iter().flatten() {
                    advance(bar, nar_bytes);
                }
                match is_reused {
                    false => advance(&self.transferred, nar_bytes),
                    true if nar_bytes >= 0 => self.transferred.dec_length(nar_bytes.unsigned_abs()),
                    true => self.transferred.inc_length(nar_bytes.unsigned_abs()),
                }
            }
            Event::Staged { path } => {
                self.finished.fetch_add(1, Relaxed);
                // Before the plan, the line tells how far resolve is.
                if self.overall.length().is_some() {
                    self.count();
                }
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

fn advance(bar: &ProgressBar, bytes: i64) {
    match bytes >= 0 {
        true => bar.inc(bytes.unsigned_abs()),
        false => bar.dec(bytes.unsigned_abs()),
    }
}

/// The style of the overall bar. Reused bytes are many times as fast as a network, so the rate and
/// the remaining time are those of the other bytes.
fn overall_style(transferred: &ProgressBar) -> ProgressStyle {
    let (of_rate, of_rest) = (transferred.clone(), transferred.clone());
    style(OVERALL)
        .with_key(
            "rate",
            move |_: &ProgressState, text: &mut dyn fmt::Write| {
                // Writing to a string does not fail.
                let _: fmt::Result = write!(text, "{}/s", HumanBytes(of_rate.per_sec() as u64));
            },
        )
        .with_key(
            "rest",
            move |_: &ProgressState, text: &mut dyn fmt::Write| {
                let _: fmt::Result = write!(text, "{:#}", HumanDuration(of_rest.eta()));
            },
        )
}

fn style(template: &str) -> ProgressStyle {
    // A test checks the constant templates.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

const RESOLVING: &str = "{spinner} {msg}";
const OVERALL: &str = "{wide_bar} {bytes}/{total_bytes} {msg} {rate} {elapsed} ({rest} left)";
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

    #[test]
    fn rate_and_rest_count_only_bytes_that_are_not_reused() {
        const MIB: u64 = 1024 * 1024;
        let bars = Bars::new();
        let path = StorePath::parse("00000000000000000000000000000000-a").unwrap();
        let progress = |mib: i64, is_reused| {
            bars.event(Event::Progress {
                path: &path,
                nar_bytes: mib * MIB as i64,
                is_reused,
            });
        };
        bars.event(Event::Planned {
            paths: 1,
            nar_bytes: 100 * MIB,
            download_bytes: 0,
        });
        progress(60, true);
        progress(-10, true);
        assert_eq!(bars.overall.position(), 50 * MIB);
        assert_eq!(bars.transferred.per_sec(), 0.0);
        assert_eq!(bars.transferred.length(), Some(50 * MIB));
        progress(1, false);
        assert_eq!(bars.overall.position(), 51 * MIB);
        assert!(bars.transferred.per_sec() > 0.0);
        // The rest is 49 MiB, at the rate of the one MiB that was transferred.
        let (rate, rest) = (bars.transferred.per_sec(), bars.transferred.eta());
        assert!(rest.as_secs_f64() * rate > 10.0 * MIB as f64, "{rest:?}");
    }
}
