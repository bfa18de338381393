//! The progress and the result of a deletion.

use std::io::{self, IsTerminal as _};

use anyhow::Error;
use floe_format::{StoreDir, StorePath};
use floe_store::{DatabaseSpace, DeadFile, GcResults, Progress, Unreadable};
use floe_transfer::{Cancel, ErrorKind, Size};
use serde_json::{Value, json};

use crate::display::{PathProgress, eprint_error, eprint_line, is_json, warn};
use crate::exit;
use crate::messages::{counted, escaped, kept_rows};
use crate::root_links::warn_of_unreadable;
use crate::stdout::print;

/// Shows the progress of work on the paths of a store, and stops it when the user interrupts it.
pub(in crate::commands) struct StoreProgress {
    progress: PathProgress,
    /// Whether to say first what will be deleted.
    announces: bool,
}

impl StoreProgress {
    /// `participle` names the work, such as `deleted`.
    pub(in crate::commands) fn start(cancel: Cancel, participle: &'static str) -> StoreProgress {
        StoreProgress {
            progress: PathProgress::start(cancel, participle),
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
            eprint_line(format_args!(
                "deleting {} without any root ({} as NARs)",
                counted(paths, "path"),
                Size(nar_bytes)
            ));
        }
        self.progress.set_total(paths, nar_bytes);
    }

    fn path_done(&self, nar_bytes: u64) {
        self.progress.add(nar_bytes);
    }

    fn should_continue(&self) -> bool {
        self.progress.should_continue()
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
    print_failures(results);
    if !json && has_result {
        eprint_line(match results.paths {
            0 => "deleted no path".to_owned(),
            paths => format!(
                "deleted {}, freed {}",
                counted(paths, "path"),
                Size(results.bytes_freed)
            ),
        });
    }
    if !json && results.stale_registrations > 0 {
        let registrations = counted(results.stale_registrations, "registration");
        eprint_line(format_args!(
            "removed {registrations} of roots that do not exist"
        ));
    }
    if !json && results.bytes_saved_by_links > 0 {
        let saved = Size(results.bytes_saved_by_links);
        eprint_line(format_args!("hard links between equal files save {saved}"));
    }
    if !json && let Some(database) = results.database {
        report_database(database, results);
    }
    collected?;
    failure_of(results)
}

/// Reports by how much the database became smaller, or that it can become smaller.
fn report_database(space: DatabaseSpace, results: &GcResults) {
    let (bytes, unused) = (Size(space.bytes), Size(space.unused_bytes));
    if results.database_bytes_freed > 0 {
        let freed = Size(results.database_bytes_freed);
        let later = if results.database_is_read {
            "; its file becomes smaller when the processes that read it end"
        } else {
            ""
        };
        eprint_line(format_args!(
            "made the database {freed} smaller; it has {bytes}{later}"
        ));
    } else if space.is_sparse() {
        eprint_line(format_args!(
            "{unused} of the {bytes} of the database are unused; floe gc --vacuum makes it smaller"
        ));
    }
}

/// Reports what could not be deleted.
pub(in crate::commands) fn report_failures(results: &GcResults) -> anyhow::Result<()> {
    print_failures(results);
    failure_of(results)
}

fn print_failures(results: &GcResults) {
    for failure in &results.failures {
        let hint = match failure.source.kind() {
            io::ErrorKind::PermissionDenied => "; remove it as root, after lsattr and chattr -i",
            _ => "",
        };
        eprint_error(format_args!("{}{hint}", escaped(failure)));
    }
}

/// Returns the error if not all was deleted.
fn failure_of(results: &GcResults) -> anyhow::Result<()> {
    match results.failures.len() {
        0 => Ok(()),
        count => {
            let places = counted(count, "place");
            let line =
                format!("cannot delete all files at {places}; the next collection tries again");
            Err(exit::failures(&line, count, ErrorKind::Failed))
        }
    }
}

/// Prints dead files with their sizes, and the sum. `nothing` is the line if there are none.
pub(in crate::commands) fn print_dead(
    dead: &[DeadFile],
    dir: &StoreDir,
    nothing: &str,
) -> anyhow::Result<()> {
    for file in dead {
        let (size, path) = (Size(file.bytes), dead_path(file, dir));
        print(format_args!("{size:>8}  {path}"))?;
    }
    let sum = Size(dead.iter().map(|file| file.bytes).sum());
    eprint_line(match dead.len() {
        0 => nothing.to_owned(),
        paths => format!("would delete {} ({sum})", counted(paths, "path")),
    });
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
    escaped(format!("{dir}/{name}"))
}

/// Warns of dead paths that cannot be deleted, because each is a reference of another.
pub(super) fn warn_of_circles(paths: &[StorePath]) {
    if let Some(first) = paths.first() {
        warn(format_args!(
            "skipping {} such as {first}: they refer to each other in a circle, so the database is \
             damaged; nix-store --verify finds more",
            counted(paths.len(), "path")
        ));
    }
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
        "databaseBytesFreed": results.database_bytes_freed,
        "failures": failures.collect::<Vec<Value>>(),
    })
}
