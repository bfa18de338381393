//! `floe optimise`: replaces equal files of a store by hard links.

pub(crate) mod args;
pub(crate) mod page;

use floe_store::{OptimiseResults, StoreWriter};
use floe_transfer::{Cancel, ErrorKind, Size};
use serde_json::json;

use super::gc::StoreProgress;
use crate::display::{eprint_error, eprint_line, warn};
use crate::exit;
use crate::messages::{counted, skipped_rows};
use crate::options;
use crate::signals;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::OptimiseArgs;

pub(crate) fn run(args: &OptimiseArgs) -> anyhow::Result<()> {
    let store = LocalStore::find(&args.store)?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let reader = store.open_with(options::lock_wait(cancel.flag()))?;
    let progress = |cancel| StoreProgress::start(cancel, "read");
    let results = if args.dry_run {
        reader.find_equal_files(args.jobs, &progress(cancel))?
    } else {
        store.prepare_writing()?;
        drop(reader);
        let options = store.settings.write_options(&cancel)?;
        let writer = StoreWriter::open_with(store.layout, &options)?;
        writer.optimise(args.jobs, &progress(cancel))?
    };
    report(args, &results)
}

fn report(args: &OptimiseArgs, results: &OptimiseResults) -> anyhow::Result<()> {
    let size = Size(results.bytes_freed);
    if args.store.json {
        print(json!({
            "filesLinked": results.files_linked,
            "bytesFreed": results.bytes_freed,
            "damagedLinks": results.damaged_links,
            "writableFiles": results.writable.len(),
            "failures": results.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }))?;
    }
    if let Some(first) = results.writable.first() {
        let others = match results.writable.len() {
            1 => String::new(),
            files => format!(" and {} more", files - 1),
        };
        warn(format_args!(
            "skipping {}{others}: a file that its owner may write may be changed; floe verify \
             shows whether it is",
            first.display()
        ));
    }
    skipped_rows(&results.damaged_rows)
        .into_iter()
        .for_each(warn);
    if results.damaged_links > 0 {
        warn(format_args!(
            "replaced {} in .links whose contents did not match their names; paths that use such a \
             file are damaged: floe verify --repair fetches them again",
            counted(results.damaged_links, "file")
        ));
    }
    for failure in &results.failures {
        eprint_error(failure);
    }
    if !args.store.json {
        let files = counted(results.files_linked, "file");
        eprint_line(if args.dry_run {
            format!("would link {files} to equal ones, which frees {size}")
        } else {
            format!("linked {files} to equal ones, which freed {size}")
        });
    }
    match results.failures.len() {
        0 => Ok(()),
        count => {
            let line = format!("cannot link the files of {}", counted(count, "path"));
            Err(exit::failures(&line, count, ErrorKind::Failed))
        }
    }
}
