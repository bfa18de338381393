//! `floe copy --stdin --follow`: copies paths as their lines arrive.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use anyhow::Context as _;
use floe_copy::{CopySummary, OpenCopy};
use floe_transfer::{CANCEL_POLL, Cancel, Error, PathSpec, StoreConfig};

use super::super::print;
use super::CopyCommand;
use super::observers::{CopyObservers, run_with_display};
use crate::display::eprint_error;
use crate::path_lines::PathLines;

/// Copies the paths of all lines that have arrived, until stdin ends. Returns the sum of all
/// copies.
pub(super) fn run(
    (open, target): (&mut OpenCopy<'_>, &dyn StoreConfig),
    observers: &CopyObservers,
    participle: &str,
    command: CopyCommand<'_>,
) -> anyhow::Result<CopySummary> {
    let lines = read_in_background()?;
    let mut sum = CopySummary::default();
    loop {
        // The first copy is that of the paths on the command line.
        if !open.specs.is_empty() {
            let summary = run_with_display(open, observers, participle)?;
            if !command.args.json {
                for path in &summary.requested_paths {
                    print(open.target.store_dir().full_path(path))?;
                }
            }
            sum.add(summary);
        }
        let Some(batch) = next_batch(&lines, &open.options.cancel)? else {
            return Ok(sum);
        };
        let batch = command.settings.follow_links(&batch, &[target]);
        request(open, &batch, &mut sum);
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
fn read_in_background() -> anyhow::Result<Receiver<anyhow::Result<String>>> {
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

/// Waits for a line, and returns it with all that have arrived. Returns `None` at the end.
fn next_batch(
    lines: &Receiver<anyhow::Result<String>>,
    cancel: &Cancel,
) -> anyhow::Result<Option<Vec<String>>> {
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
