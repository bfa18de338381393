//! The progress and the result of a deletion.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;

use anyhow::Error;
use floe_format::{StoreDir, StorePath};
use floe_store::{DeadFile, GcResults, Progress, Unreadable};
use floe_transfer::{Cancel, ErrorKind, Size};
use serde_json::{Value, json};

use crate::display::{PathCounts, StatusLine, eprint_error, eprint_line, is_json, warn};
use crate::exit;
use crate::messages::{collect as messages, kept_rows};
use crate::root_links::warn_of_unreadable;
use crate::stdout::print;

/// Shows the progress of work on the paths of a store, and stops it when the user interrupts it.
pub(in crate::commands) struct StoreProgress {
    counts: Arc<PathCounts>,
    cancel: Cancel,
    /// Whether to say first what will be deleted.
    announces: bool,
    _line: StatusLine,
}

impl StoreProgress {
    /// Shows a line that `text` makes of the paths and bytes that are done, and of all.
    pub(in crate::commands) fn start(
        cancel: Cancel,
        text: fn((u64, u64), (Size, Size)) -> String,
    ) -> StoreProgress {
        let counts: Arc<PathCounts> = Arc::default();
        let shown = counts.clone();
        StoreProgress {
            _line: StatusLine::start(move || shown.line(text)),
            counts,
            cancel,
            announces: false,
        }
    }

    /// Also says first what will be deleted, on a terminal.
    pub(super) fn announced(self) -> StoreProgress {
        StoreProgress {
            announces: io::stderr().is_terminal(),
            ..self
        }
    }
}

impl Progress for StoreProgress {
    fn unreadable(&self, places: &[Unreadable]) {
        warn_of_unreadable(places);
    }

    fn started(&self, paths: u64, nar_bytes: u64) {
        if self.announces && !is_json() && paths > 0 {
            eprint_line(messages::will_delete(paths, Size(nar_bytes)));
        }
        self.counts.start(paths, nar_bytes);
    }

    fn path_done(&self, nar_bytes: u64) {
        self.counts.add(nar_bytes);
    }

    fn should_continue(&self) -> bool {
        !self.cancel.is_raised()
    }
}

/// Reports what was deleted, and what was not.
pub(in crate::commands) fn report<E>(
    results: &GcResults,
    collected: Result<(), E>,
    json: bool,
) -> anyhow::Result<()>
where
    Error: From<E>,
{
    let has_result = collected.is_ok() || results.paths > 0 || !results.failures.is_empty();
    if json && has_result {
        print(to_json(results))?;
    }
    warn_of_circles(&results.circular);
    kept_rows(&results.damaged_rows).into_iter().for_each(warn);
    for failure in &results.failures {
        eprint_error(messages::failure(failure));
    }
    if !json && has_result {
        eprint_line(messages::deleted(results.paths, Size(results.bytes_freed)));
    }
    if !json && results.stale_registrations > 0 {
        eprint_line(messages::removed_registrations(results.stale_registrations));
    }
    if !json && results.bytes_saved_by_links > 0 {
        eprint_line(messages::saved(Size(results.bytes_saved_by_links)));
    }
    collected?;
    match results.failures.len() {
        0 => Ok(()),
        count => Err(failed(&messages::not_deleted(count), count)),
    }
}

/// Prints dead files with their sizes.
pub(in crate::commands) fn print_dead(dead: &[DeadFile], dir: &StoreDir) -> anyhow::Result<()> {
    for file in dead {
        print(messages::dead(&dead_path(file, dir), Size(file.bytes)))?;
    }
    Ok(())
}

/// Returns dead files as a list of objects.
pub(in crate::commands) fn dead_to_json(dead: &[DeadFile], dir: &StoreDir) -> Value {
    let files = dead.iter().map(|file| {
        let name = file.name.to_string_lossy();
        json!({ "path": format!("{dir}/{name}"), "bytes": file.bytes })
    });
    files.collect()
}

/// Returns the path of a dead file as a line of text. A name may have control characters.
pub(super) fn dead_path(file: &DeadFile, dir: &StoreDir) -> String {
    let name = file.name.to_string_lossy();
    messages::escaped(format!("{dir}/{name}"))
}

/// Warns of dead paths that cannot be deleted, because each is a reference of another.
pub(super) fn warn_of_circles(paths: &[StorePath]) {
    if let Some(first) = paths.first() {
        warn(messages::circular(paths.len(), first));
    }
}

/// Reports a command of which a part has failed.
pub(in crate::commands) fn failed(line: &str, count: usize) -> Error {
    if !is_json() {
        eprint_error(line);
    }
    exit::failures(line, count, ErrorKind::Failed)
}

/// Returns the result as an object.
fn to_json(results: &GcResults) -> Value {
    let failures = results.failures.iter().map(|failure| {
        json!({
            "path": failure.path.display().to_string(),
            "message": failure.to_string(),
        })
    });
    json!({
        "paths": results.paths,
        "bytesFreed": results.bytes_freed,
        "links": results.links,
        "staleRegistrations": results.stale_registrations,
        "bytesSavedByLinks": results.bytes_saved_by_links,
        "failures": failures.collect::<Vec<Value>>(),
    })
}
