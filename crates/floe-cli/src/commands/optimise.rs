//! `floe optimise`: replaces equal files of a store by hard links.

pub(crate) mod args;
pub(crate) mod page;

use floe_store::{OptimiseResults, StoreWriter};
use floe_transfer::{Cancel, Size};
use serde_json::json;

use super::gc::{StoreProgress, failed};
use crate::display::{eprint_error, eprint_line, warn};
use crate::messages::{collect as messages, skipped_rows};
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
    let results = match args.dry_run {
        true => reader.find_equal_files(
            args.jobs,
            &StoreProgress::start(cancel, messages::optimising),
        )?,
        false => {
            store.prepare_writing()?;
            drop(reader);
            let options = store.settings.write_options(&cancel)?;
            let writer = StoreWriter::open_with(store.layout, &options)?;
            writer.optimise(
                args.jobs,
                &StoreProgress::start(cancel, messages::optimising),
            )?
        }
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
        warn(messages::writable_files(results.writable.len(), first));
    }
    skipped_rows(&results.damaged_rows)
        .into_iter()
        .for_each(warn);
    if results.damaged_links > 0 {
        warn(messages::damaged_links(results.damaged_links));
    }
    for failure in &results.failures {
        eprint_error(failure);
    }
    if !args.store.json {
        eprint_line(messages::linked(results.files_linked, size, args.dry_run));
    }
    match results.failures.len() {
        0 => Ok(()),
        count => Err(failed(&messages::not_optimised(count), count)),
    }
}
