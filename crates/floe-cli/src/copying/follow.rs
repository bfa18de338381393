//! `--stdin --follow` and `--watch-store`: copies paths as they come.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use floe_copy::{CopySummary, OpenCopy};
use floe_store::{StoreLayout, StoreReader};
use floe_transfer::{CANCEL_POLL, Cancel, Error, PathSpec, StoreConfig};

use super::{Copying, Opened};
use crate::display::{eprint_error, eprint_line, warn};
use crate::messages::skipped_rows;
use crate::options;
use crate::path_lines::PathLines;
use crate::stdout::print;

/// The paths as they come; the end means that no further one comes.
pub(super) type Lines = Receiver<anyhow::Result<String>>;

/// Copies all paths that have come, until there is none any more. Returns the sum of all copies.
pub(super) fn run(opened: &mut Opened<'_>, lines: &Lines) -> anyhow::Result<CopySummary> {
    let Copying { settings, args, .. } = *opened.command;
    // A line may be the real place of a path in any of them.
    let stores = [&opened.request.target].into_iter();
    let stores = stores.chain(&opened.request.sources);
    let stores: Vec<&dyn StoreConfig> = stores.map(|store| &**store).collect();
    let mut sum = CopySummary::default();
    loop {
        // The first copy is that of the paths on the command line.
        if !opened.open.specs.is_empty() {
            let summary = opened.copy_once()?;
            if !args.json {
                for path in &summary.requested_paths {
                    print(opened.open.target.store_dir().full_path(path))?;
                }
            }
            sum.add(summary);
        }
        let Some(batch) = next_batch(lines, &opened.open.options.cancel)? else {
            return Ok(sum);
        };
        let followed = batch.iter().map(|line| {
            let followed = settings.follow_links(std::slice::from_ref(line), &stores);
            // A line that names no path is reported with the reason.
            let followed = followed.ok().and_then(|mut only| only.pop());
            followed.unwrap_or_else(|| line.clone())
        });
        let batch: Vec<String> = followed.collect();
        request(&mut opened.open, &batch, &mut sum);
    }
}

/// Requests the paths of some lines. A line that names no path is reported.
fn request(open: &mut OpenCopy<'_>, batch: &[String], sum: &mut CopySummary) {
    open.specs.clear();
    for line in batch {
        match PathSpec::parse(line, open.target.store_dir()) {
            Ok(spec) if open.specs.contains(&spec) => {}
            Ok(spec) => open.specs.push(spec),
            Err(error) => {
                eprint_error(&error);
                sum.failures.push(error);
            }
        }
    }
}

/// Reads lines on a thread, which ends with the process.
pub(super) fn read_in_background() -> anyhow::Result<Lines> {
    let (sender, lines) = channel();
    let read = move || {
        for line in PathLines(io::stdin().lock()) {
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("floe-stdin".into())
        .spawn(read)
        .context("cannot start a thread for stdin")?;
    Ok(lines)
}

/// Starts a thread that reports each path of a store as it becomes valid. After `stop` is raised,
/// the thread looks once more and ends.
pub(super) fn watch_in_background(
    layout: &StoreLayout,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Lines> {
    let reader = StoreReader::open_with(layout.clone(), options::lock_wait(stop.clone()))?;
    let mut last = reader.newest_registration()?;
    eprint_line(format_args!(
        "watching {}; SIGINT or SIGTERM ends it after the last path",
        layout.real_store_dir.display()
    ));
    let (sender, lines) = channel();
    let dir = layout.store_dir.clone();
    let mut reported = 0;
    let watch = move || {
        loop {
            let is_last = stop.load(Ordering::Relaxed);
            match reader.valid_paths_after(last) {
                Ok(new) => {
                    let skipped = reader.skipped_rows();
                    if skipped.len() > reported {
                        skipped_rows(&skipped).into_iter().for_each(warn);
                        reported = skipped.len();
                    }
                    for (number, path) in new {
                        last = number;
                        if sender.send(Ok(dir.full_path(&path))).is_err() {
                            return;
                        }
                    }
                }
                Err(error) => {
                    // The receiver is gone only after an error of its own.
                    let _: Result<(), _> = sender.send(Err(error.into()));
                    return;
                }
            }
            if is_last {
                return;
            }
            thread::sleep(WATCH_INTERVAL);
        }
    };
    thread::Builder::new()
        .name("floe-watch".into())
        .spawn(watch)
        .context("cannot start a thread for the store")?;
    Ok(lines)
}

/// How often the database is queried for new paths.
const WATCH_INTERVAL: Duration = Duration::from_millis(300);

/// Waits for a line, and returns it with all that have arrived. Returns `None` at the end.
fn next_batch(lines: &Lines, cancel: &Cancel) -> anyhow::Result<Option<Vec<String>>> {
    let first = loop {
        match lines.recv_timeout(CANCEL_POLL) {
            Ok(line) => break line?,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if cancel.is_raised() => {
                return Err(Error::Cancelled.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let mut batch = vec![first];
    for line in lines.try_iter() {
        batch.push(line?);
    }
    Ok(Some(batch))
}
