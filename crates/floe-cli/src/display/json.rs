//! The events of a copy with `--log-format json`. docs/interface.md lists them with their fields.

use std::time::{Duration, Instant};

use floe_transfer::{Error, Event, EventSink, ServerWait};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::event_lines::event_warning;
use super::stderr::{Level, eprint_line, warn, write_event};
use crate::exit_code::code_and_name;
use crate::messages::waiting_for_resource;

/// Returns the fields about an error. Fields without a value are null.
pub(crate) fn error_fields(error: &Error) -> Value {
    json!({
        "message": error.to_string(),
        "kind": code_and_name(error.kind()).1,
        "path": error.path_name(),
        "url": error.url(),
    })
}

/// Writes the events of a copy as JSON lines. Holds the counts, and the time of the last progress
/// event.
#[derive(Debug)]
pub(crate) struct JsonLines(Mutex<(Counts, Instant)>);

/// The fields of progress events.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    paths: usize,
    staged: usize,
    nar_bytes: u64,
    unpacked_bytes: i64,
    fetched_bytes: u64,
}

impl JsonLines {
    pub(crate) fn new() -> JsonLines {
        JsonLines(Mutex::new((Counts::default(), Instant::now())))
    }
}

impl EventSink for JsonLines {
    fn event(&self, event: Event<'_>) {
        let mut state = self.0.lock();
        let (counts, last_progress) = &mut *state;
        match event {
            Event::Planned {
                paths,
                nar_bytes,
                download_bytes,
            } => {
                counts.paths += paths;
                counts.nar_bytes = counts.nar_bytes.saturating_add(nar_bytes);
                let fields = json!({
                    "paths": paths, "narBytes": nar_bytes, "downloadBytes": download_bytes,
                });
                write_event(Level::Info, "planned", fields);
            }
            Event::Fetched { bytes, .. } => counts.fetched_bytes += bytes,
            Event::Progress { nar_bytes, .. } => {
                counts.unpacked_bytes += nar_bytes;
                if last_progress.elapsed() >= PROGRESS_INTERVAL {
                    *last_progress = Instant::now();
                    write_event(Level::Info, "progress", json!(counts));
                }
            }
            Event::Staged { path } => {
                counts.staged += 1;
                write_event(Level::Info, "staged", json!({ "path": path.as_str() }));
            }
            Event::Retrying { path, error } => {
                let mut fields = error_fields(error);
                if let Some(path) = path {
                    fields["path"] = path.as_str().into();
                }
                write_event(Level::Warning, "retrying", fields);
            }
            Event::WaitingForServer {
                server,
                wait,
                error,
            } => {
                let (ServerWait::AtMost(time) | ServerWait::Demanded(time)) = wait;
                let mut fields = error_fields(error);
                fields["server"] = server.into();
                fields["seconds"] = time.as_secs().into();
                write_event(Level::Warning, "waitingForServer", fields);
            }
            Event::Failed { error } => write_event(Level::Error, "failed", error_fields(error)),
            Event::WaitingForDatabase { what } => eprint_line(waiting_for_resource(what)),
            Event::KeptForResume { paths } => {
                write_event(Level::Info, "keptForResume", json!({ "paths": paths }))
            }
            Event::WaitingForLock { path, seconds } => {
                let fields = json!({ "path": path.as_str(), "seconds": seconds });
                write_event(Level::Info, "waitingForLock", fields);
            }
            other => event_warning(&other).into_iter().for_each(warn),
        }
    }
}

/// The interval of progress events: short enough to draw a bar from, long enough for log files.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
