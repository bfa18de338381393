//! `floe rebuild-db`: makes the database of a local store new from the paths on disk.

pub(crate) mod args;
pub(crate) mod page;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use floe_cache::Network;
use floe_copy::{
    LeftOut, LeftOutPath, Origin, Rebuild, RebuildOptions, RebuildReport, RequestedPaths, Sources,
};
use floe_format::{StoreDir, StorePath};
use floe_store::{StoreError, StoreRebuild};
use floe_transfer::{Cancel, CopyOptions, ErrorKind, Events, RetryPolicy, Session, Size};
use serde_json::{Value, json};

use super::gc::StoreProgress;
use crate::copying::warn_of_unavailable;
use crate::display::{self, eprint_line, is_json, warn};
use crate::exit;
use crate::messages::{counted, escaped, skipped_rows};
use crate::signals;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::RebuildDbArgs;

pub(crate) fn run(args: &RebuildDbArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let store = LocalStore::find(&args.store)?;
    if !args.dry_run {
        store.prepare_writing()?;
    }
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let write = store.settings.write_options(&cancel)?;
    let rebuild = StoreRebuild::begin(store.layout.clone(), write, args.dry_run)?;
    match rebuild.damage() {
        // The message of the error advises this command.
        Some(StoreError::Database { source, .. }) => warn(damaged(source)),
        Some(other) => warn(damaged(other)),
        None => {}
    }
    skipped_rows(&rebuild.skipped_rows())
        .into_iter()
        .for_each(warn);
    let options = RebuildOptions {
        copy: CopyOptions {
            trusted_keys: store.settings.trusted_keys(&args.trust)?,
            check_signatures: store.settings.check_signatures(&args.trust, &*store.config),
            jobs: args.jobs,
            cancel: cancel.clone(),
            ..CopyOptions::default()
        },
        accept_unsigned: args.accept_unsigned,
    };
    let events = Events::new(Arc::new(display::Display::default()));
    let session =
        Session::new(cancel.clone(), events).with_options::<Network>(store.settings.network(false));
    let sources = open_sources(args, &store, &session)?;
    let report = Rebuild {
        store: rebuild,
        sources: &sources,
        options: &options,
        progress: &StoreProgress::start(cancel, "hashed"),
    }
    .run()?;
    print_report(args, &report, (&store.layout.store_dir, began))
}

fn damaged(cause: &dyn Display) -> String {
    format!("the old database is damaged: {cause}")
}

/// Opens the caches. Those of nix.conf are not needed; a cache that the user names is.
fn open_sources(
    args: &RebuildDbArgs,
    store: &LocalStore,
    session: &Session,
) -> anyhow::Result<Sources> {
    let none = RequestedPaths::Named(Vec::new());
    let request = store
        .settings
        .copy_from(&args.from, store.config.clone(), none);
    let opened =
        request.and_then(|request| Ok(Sources::open(&request.sources, request.order, session)?));
    let error = match opened {
        Ok(sources) => {
            warn_of_unavailable(&sources);
            if args.accept_unsigned && !sources.unavailable.is_empty() {
                return Err(exit::failures(NOT_ASKED, 1, ErrorKind::Network));
            }
            return Ok(sources);
        }
        Err(error) => error,
    };
    let kind = exit::kind(&error);
    if !args.from.is_empty() || kind == ErrorKind::Interrupted {
        return Err(error);
    }
    warn(format_args!(
        "no cache is queried: {}",
        exit::message(&error)
    ));
    if args.accept_unsigned && kind != ErrorKind::Usage {
        return Err(exit::failures(NOT_ASKED, 1, ErrorKind::Network));
    }
    Ok(Sources::new(Vec::new(), RetryPolicy::default()))
}

/// A damaged path would otherwise become valid, although a cache has signed other contents.
const NOT_ASKED: &str = "cannot accept unsigned paths: a cache that may know them cannot be asked; \
     try again later, or without caches with --option substituters ''";

fn print_report(
    args: &RebuildDbArgs,
    report: &RebuildReport,
    (dir, began): (&StoreDir, Instant),
) -> anyhow::Result<()> {
    for failure in &report.failures {
        warn(failure);
    }
    if args.store.json {
        let mut result = to_json(report, dir);
        result["seconds"] = began.elapsed().as_secs_f64().into();
        print(result)?;
    } else {
        lines(report, dir).into_iter().try_for_each(print)?;
    }
    let sum = summary(report, args.dry_run);
    if report.left_out.is_empty() {
        eprint_line(&sum);
        return Ok(());
    }
    if !is_json() {
        eprint_line(&sum);
        eprint_line(hint(report));
    }
    let failed = report.left_out.len();
    Err(exit::reported_failures(&sum, failed, ErrorKind::Untrusted))
}

/// Returns the lines about paths that need attention.
fn lines(report: &RebuildReport, dir: &StoreDir) -> Vec<String> {
    let print = |path: &StorePath| dir.full_path(path);
    let unsigned = report.origins.get(&Origin::Unsigned).into_iter().flatten();
    let unsigned = unsigned.map(|path| format!("unsigned {}", print(path)));
    let vanished = report.vanished.iter();
    let vanished = vanished.map(|path| format!("removed {}: its files are gone", print(path)));
    let left_out = report.left_out.iter();
    let left_out = left_out.map(|LeftOutPath { path, reason }| {
        format!("left out {}: {}", print(path), escaped(reason))
    });
    unsigned.chain(vanished).chain(left_out).collect()
}

fn summary(report: &RebuildReport, is_dry_run: bool) -> String {
    let registered: usize = report.origins.values().map(Vec::len).sum();
    let count = |is_one: &dyn Fn(&Origin) -> bool| -> usize {
        let origins = report.origins.iter().filter(|(origin, _)| is_one(origin));
        origins.map(|(_, paths)| paths.len()).sum()
    };
    let parts = [
        (count(&|it| *it == Origin::Database), "of the old database"),
        (
            count(&|it| matches!(it, Origin::Cache(_))),
            "known to caches",
        ),
        (
            count(&|it| *it == Origin::ContentAddress),
            "with a content address",
        ),
        (count(&|it| *it == Origin::Unsigned), "without a signature"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, text)| format!("{count} {text}"))
        .collect();
    let verb = if is_dry_run {
        "would register"
    } else {
        "registered"
    };
    let paths = counted(registered, "path");
    let mut text = format!("{verb} {paths} ({})", Size(report.nar_bytes));
    if !parts.is_empty() {
        text = format!("{text}: {}", parts.join(", "));
    }
    text = format!("{text}; left out {}", report.left_out.len());
    match &report.saved {
        Some(saved) => format!("{text}; the old database is {}", saved.display()),
        None => text,
    }
}

/// Tells how paths that were left out become valid.
fn hint(report: &RebuildReport) -> String {
    let is_unsigned = |it: &LeftOutPath| matches!(it.reason, LeftOut::Unsigned { .. });
    let accept = if report.left_out.iter().any(is_unsigned) {
        " --accept-unsigned registers those without a trusted signature."
    } else {
        ""
    };
    format!(
        "floe install PATH fetches a path that was left out, and floe rebuild-db then registers \
         those that need it.{accept} A collection deletes what is not registered."
    )
}

fn to_json(report: &RebuildReport, dir: &StoreDir) -> Value {
    let print = |paths: &[StorePath]| -> Vec<String> {
        paths.iter().map(|path| dir.full_path(path)).collect()
    };
    let of = |origin: &Origin| print(report.origins.get(origin).map_or(&[], Vec::as_slice));
    let caches = report
        .origins
        .iter()
        .filter_map(|(origin, paths)| match origin {
            Origin::Cache(name) => Some((name.clone(), print(paths).into())),
            _ => None,
        });
    let left_out = report.left_out.iter().map(|LeftOutPath { path, reason }| {
        let message = reason.to_string();
        json!({ "kind": reason.kind(), "path": dir.full_path(path), "message": message })
    });
    json!({
        "narBytes": report.nar_bytes,
        "fromDatabase": of(&Origin::Database),
        "fromCaches": caches.collect::<serde_json::Map<String, Value>>(),
        "contentAddressed": of(&Origin::ContentAddress),
        "unsigned": of(&Origin::Unsigned),
        "leftOut": left_out.collect::<Vec<_>>(),
        "vanished": print(&report.vanished),
        "savedDatabase": report.saved,
    })
}
