//! The recipients of a copy's events.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floe_copy::{CopySummary, OpenCopy};
use floe_transfer::{Error, Event, EventSink};

use crate::display::trace::Trace;
use crate::display::{
    RepeatLimit, StepTimes, eprint_line, is_json, line_display, progress_display, warn,
};
use crate::messages::{copy, outcome};

/// Runs the copy with its display, and removes the bars before it returns, so that later lines
/// appear below the last line of progress. `participle` is that of the command.
pub(super) fn run_with_display(
    open: &OpenCopy<'_>,
    trace: Option<Trace>,
    relay: &Relay,
    participle: &str,
) -> Result<CopySummary, Error> {
    let observers = Arc::new(CopyObservers {
        display: progress_display(),
        trace,
        limit: RepeatLimit::default(),
        planned: AtomicUsize::new(0),
        registered: AtomicUsize::new(0),
    });
    *relay.observers() = Some(observers.clone());
    let result = match &relay.times {
        Some(times) => open.run(&WithTimes {
            times,
            observers: &observers,
        }),
        None => open.run(&*observers),
    };
    *relay.observers() = None;
    let (failures, paths) = (
        observers.limit.hidden_failures(),
        observers.limit.hidden_signatures(),
    );
    let [planned, registered] =
        [&observers.planned, &observers.registered].map(|count| count.load(Ordering::Relaxed));
    // The bars must not be drawn below the following lines.
    drop(observers);
    if paths > 0 {
        warn(copy::more_dropped_signatures(paths));
    }
    if failures > 0 {
        eprint_line(format_args!("floe: {}", copy::more_failures(failures)));
    }
    if matches!(result, Err(Error::Cancelled)) {
        eprint_line(outcome::interrupted(participle, registered, planned));
    }
    result
}

/// Adds up times beside the display.
struct WithTimes<'a> {
    times: &'a StepTimes,
    observers: &'a CopyObservers,
}

impl EventSink for WithTimes<'_> {
    fn event(&self, event: Event<'_>) {
        self.times.observe(&event);
        self.observers.event(event);
    }
}

struct CopyObservers {
    display: Box<dyn EventSink>,
    trace: Option<Trace>,
    /// JSON lines have no limit, because programs read them.
    limit: RepeatLimit,
    /// The number of paths in the plan.
    planned: AtomicUsize,
    /// How many of them are valid.
    registered: AtomicUsize,
}

impl EventSink for CopyObservers {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Planned { paths, .. } => {
                self.planned.fetch_add(paths, Ordering::Relaxed);
            }
            Event::Registered { paths } => self.registered.store(paths, Ordering::Relaxed),
            _ => {}
        }
        if let Some(trace) = &self.trace {
            trace.event(&event);
        }
        if is_json() || self.limit.allows(&event) {
            self.display.event(event);
        }
    }
}

/// Forwards network events, also before the display of the copy exists and after it has ended.
#[derive(Default)]
pub(super) struct Relay {
    observers: Mutex<Option<Arc<CopyObservers>>>,
    /// The times of all steps, for `--stats`.
    pub(super) times: Option<StepTimes>,
}

impl Relay {
    /// `with_times` tells whether to add up the times of all steps.
    pub(super) fn new(with_times: bool) -> Relay {
        Relay {
            times: with_times.then(StepTimes::new),
            ..Relay::default()
        }
    }

    /// Holds the lock during an event, so that the caller drops the last reference.
    fn observers(&self) -> MutexGuard<'_, Option<Arc<CopyObservers>>> {
        self.observers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Relay {
    fn event(&self, event: Event<'_>) {
        if let Some(times) = &self.times
            && let Event::Connected { .. } = event
        {
            times.observe(&event);
            return;
        }
        match &*self.observers() {
            Some(observers) => observers.event(event),
            None => line_display().event(event),
        }
    }
}
