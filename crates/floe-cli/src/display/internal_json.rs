//! The lines of Nix's `--log-format internal-json`: `@nix ` and a JSON object.
//!
//! The form is that of Nix's `logging.hh` and `logging.cc`. Programs such as nix-output-monitor
//! read it. A copy is an activity of the type *copy paths*, and each of its paths one of the type
//! *copy path*.

use std::collections::HashMap;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use floe_format::{StoreDir, StorePath};
use floe_transfer::{Event, EventSink};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::event_lines::{event_line, event_warning};
use super::stderr::{Level, write_nix_message, write_text};

/// Sets the store or cache to which the paths of this process go.
pub(crate) fn set_target(target: String) {
    // A later copy of the same process has the same target.
    let _: Result<(), String> = TARGET.set(target);
}

static TARGET: OnceLock<String> = OnceLock::new();

/// Writes an action.
fn write(action: Value) {
    write_text(format!("@nix {action}"));
}

/// Writes the activities of a copy.
#[derive(Debug)]
pub(super) struct InternalJson(Mutex<Activities>);

#[derive(Debug)]
struct Activities {
    store_dir: StoreDir,
    /// The number of the activity of the whole copy.
    copy: u64,
    paths: HashMap<StorePath, PathActivity>,
    done: u64,
    expected: u64,
    failed: u64,
}

#[derive(Debug)]
struct PathActivity {
    number: u64,
    nar_size: u64,
    nar_bytes: i64,
    reported: Instant,
}

impl InternalJson {
    /// Begins the activity of a copy.
    pub(super) fn new(store_dir: &StoreDir) -> InternalJson {
        let copy = next_number();
        write(start(copy, (0, COPY_PATHS), "", json!([])));
        InternalJson(Mutex::new(Activities {
            store_dir: store_dir.clone(),
            copy,
            paths: HashMap::new(),
            done: 0,
            expected: 0,
            failed: 0,
        }))
    }
}

impl Drop for InternalJson {
    fn drop(&mut self) {
        let activities = self.0.get_mut();
        for path in activities.paths.values() {
            write(stop(path.number));
        }
        write(stop(activities.copy));
    }
}

impl EventSink for InternalJson {
    fn event(&self, event: Event<'_>) {
        let mut activities = self.0.lock();
        match event {
            Event::Planned {
                paths, nar_bytes, ..
            } => activities.plan(paths as u64, nar_bytes),
            Event::Started {
                path,
                nar_size,
                source,
            } => activities.start(path, nar_size, source),
            Event::Progress {
                path, nar_bytes, ..
            } => activities.progress(path, nar_bytes),
            Event::Staged { path } => activities.end(path, true),
            Event::TransferFailed { path } => activities.end(path, false),
            other => {
                drop(activities);
                message(&other);
            }
        }
    }
}

/// Writes an event that is no activity.
pub(super) fn message(event: &Event<'_>) {
    match event {
        Event::Failed { error } => write_nix_message(Level::Error, &format!("error: {error}")),
        other => {
            if let Some(warning) = event_warning(other) {
                write_nix_message(Level::Warning, &format!("warning: {warning}"));
            }
            if let Some(line) = event_line(other) {
                write_nix_message(Level::Info, &line);
            }
        }
    }
}

impl Activities {
    fn plan(&mut self, paths: u64, nar_bytes: u64) {
        self.expected += paths;
        let expected = json!([COPY_PATH, nar_bytes]);
        write(result(self.copy, SET_EXPECTED, expected));
        self.report();
    }

    fn start(&mut self, path: &StorePath, nar_size: u64, source: &str) {
        let number = next_number();
        let target = TARGET.get().map_or("local", String::as_str);
        let full = self.store_dir.full_path(path);
        let text = format!("copying path '{full}' from '{source}'");
        let fields = json!([full, source, target]);
        write(start(number, (INFO, COPY_PATH), &text, fields));
        let activity = PathActivity {
            number,
            nar_size,
            nar_bytes: 0,
            reported: Instant::now(),
        };
        self.paths.insert(path.clone(), activity);
        self.report();
    }

    fn progress(&mut self, path: &StorePath, nar_bytes: i64) {
        let Some(activity) = self.paths.get_mut(path) else {
            return;
        };
        activity.nar_bytes += nar_bytes;
        let is_complete = activity.nar_bytes.cast_unsigned() == activity.nar_size;
        if is_complete || activity.reported.elapsed() >= INTERVAL {
            activity.reported = Instant::now();
            let fields = json!([activity.nar_bytes.max(0), activity.nar_size, 0, 0]);
            write(result(activity.number, PROGRESS, fields));
        }
    }

    fn end(&mut self, path: &StorePath, is_staged: bool) {
        let Some(activity) = self.paths.remove(path) else {
            return;
        };
        write(stop(activity.number));
        self.done += u64::from(is_staged);
        self.failed += u64::from(!is_staged);
        self.report();
    }

    /// Writes how many paths are done, expected, running and failed.
    fn report(&self) {
        let fields = json!([self.done, self.expected, self.paths.len(), self.failed]);
        write(result(self.copy, PROGRESS, fields));
    }
}

/// Returns the number of a new activity, which no other process has.
fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let process = u64::from(process::id()) << 32;
    process + LAST.fetch_add(1, Ordering::Relaxed)
}

fn start(number: u64, (level, kind): (u64, u64), text: &str, fields: Value) -> Value {
    let mut action = json!({
        "action": "start", "id": number, "level": level, "parent": 0, "text": text, "type": kind,
    });
    if fields.as_array().is_some_and(|fields| !fields.is_empty()) {
        action["fields"] = fields;
    }
    action
}

fn result(number: u64, kind: u64, fields: Value) -> Value {
    json!({ "action": "result", "fields": fields, "id": number, "type": kind })
}

fn stop(number: u64) -> Value {
    json!({ "action": "stop", "id": number })
}

/// `lvlInfo`.
const INFO: u64 = 3;

/// `actCopyPath`.
const COPY_PATH: u64 = 100;

/// `actCopyPaths`.
const COPY_PATHS: u64 = 103;

/// `resProgress`.
const PROGRESS: u64 = 105;

/// `resSetExpected`.
const SET_EXPECTED: u64 = 106;

/// The interval of the progress of one path.
const INTERVAL: Duration = Duration::from_millis(100);
