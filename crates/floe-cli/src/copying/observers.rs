//! The recipients of a copy's events.

use std::sync::atomic::{AtomicUsize, Ordering};

use floe_copy::{CopySummary, OpenCopy};
use floe_transfer::{Error, Event, EventSink};
use parking_lot::RwLock;

use super::CopyAction;
use crate::display::trace::Trace;
use crate::display::{Display, RepeatLimit, StepTimes, eprint_error, eprint_line, is_json, warn};
use crate::messages::counted;

/// Runs the copy, and prints what its display has left out. `action` is that of the command.
pub(super) fn run_with_display(
    open: &OpenCopy<'_>,
    observers: &CopyObservers,
    action: CopyAction,
) -> Result<CopySummary, Error> {
    let result = open.run();
    let (failures, paths) = (
        observers.limit.hidden_failures(),
        observers.limit.hidden_signatures(),
    );
    let [planned, registered] =
        [&observers.planned, &observers.registered].map(|count| count.load(Ordering::Relaxed));
    if paths > 0 {
        warn(format_args!(
            "dropping signatures of {}",
            counted(paths, "more path")
        ));
    }
    if failures > 0 {
        eprint_line(format_args!(
            "floe: {} for the same causes; --log-format json prints all",
            counted(failures, "more failure")
        ));
    }
    let (consequences, first) = observers.limit.consequences();
    first.iter().for_each(eprint_error);
    if consequences > 0 {
        let (paths, need) = (
            counted(consequences, "other path"),
            if consequences == 1 { "needs" } else { "need" },
        );
        eprint_line(format_args!("floe: {paths} {need} them; -v lists all"));
    }
    if matches!(result, Err(Error::Cancelled)) {
        let registered = match planned {
            0 => "no paths".to_owned(),
            _ => format!("{registered} of {}", counted(planned, "path")),
        };
        let participle = action.participle();
        eprint_line(format_args!(
            "{participle} {registered} before the interrupt"
        ));
    }
    result
}

/// Shows the events of a command, adds up times, and writes the trace.
#[derive(Default)]
pub(super) struct CopyObservers {
    display: Display,
    /// The trace of all copies.
    trace: RwLock<Option<Trace>>,
    /// The times of all steps, for `--stats`.
    pub(super) times: Option<StepTimes>,
    /// JSON lines have no limit, because programs read them.
    limit: RepeatLimit,
    /// The number of paths in the plan.
    planned: AtomicUsize,
    /// How many of them are valid.
    registered: AtomicUsize,
}

impl CopyObservers {
    /// `with_times` tells whether to add up the times of all steps.
    pub(super) fn new(with_times: bool) -> CopyObservers {
        CopyObservers {
            times: with_times.then(StepTimes::new),
            ..CopyObservers::default()
        }
    }

    /// Writes further events into a trace. `None` completes the file.
    pub(super) fn set_trace(&self, trace: Option<Trace>) {
        *self.trace.write() = trace;
    }

    fn count(&self, event: &Event<'_>) {
        match event {
            Event::Begun { .. } => {
                self.limit.reset();
                self.planned.store(0, Ordering::Relaxed);
                self.registered.store(0, Ordering::Relaxed);
            }
            Event::Planned { paths, .. } => {
                self.planned.fetch_add(*paths, Ordering::Relaxed);
            }
            Event::Registered { paths } => self.registered.store(*paths, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl EventSink for CopyObservers {
    fn event(&self, event: Event<'_>) {
        self.count(&event);
        if let Some(times) = &self.times {
            times.observe(&event);
        }
        if let Some(trace) = &*self.trace.read() {
            trace.event(&event);
        }
        if is_json() || self.limit.allows(&event) {
            self.display.event(event);
        }
    }
}
