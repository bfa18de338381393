//! The common part of `floe install` and `floe copy`: opens sources and target, copies, and
//! reports the outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use floe_config::secret_key_warnings;
use floe_copy::{CopyRequest, CopySummary, OpenCopy, StoreConfig};
use floe_format::StoreDir;
use floe_transfer::{Error, ErrorKind, Event, EventSink, NetworkEvents, Space};
use serde_json::{Value, json};

use super::gc_roots::GcRootLinks;
use super::mount;
use super::print;
use crate::args::TransferArgs;
use crate::display::trace::Trace;
use crate::display::{
    Level, RepeatLimit, eprint_error, eprint_line, is_json, line_display, progress_display, warn,
    write_event,
};
use crate::exit;
use crate::messages::copy;
use crate::options::{self, Settings};

/// Copies, and prints the requested paths or the JSON object. `name` is the name of the command.
pub(crate) fn run_copy(
    name: &str,
    request: CopyRequest,
    settings: &Settings,
    args: &TransferArgs,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let relay = Arc::new(Relay::default());
    let copy_options = settings.copy_options(args, &request)?;
    let mut request = CopyRequest {
        network: settings.network(args.refresh),
        store_dir: settings.context.store_dir.clone(),
        write: settings.write_options(&copy_options.cancel)?,
        options: copy_options,
        ..request
    };
    request.network.events = NetworkEvents::new(relay.clone());
    let copy_options = &request.options;
    options::cancel_on_signals(&copy_options.cancel)?;
    if let (Some(layout), false) = (request.target.layout(), copy_options.dry_run) {
        // Must come before any other thread starts: such a thread would keep the read-only mount.
        mount::make_writable(&layout.real_store_dir)?;
    }
    // Fail early: validate before any download.
    let path_count = request.check()?;
    let check_gc_roots = |paths| GcRootLinks::check(args, &*request.target, paths);
    let mut gc_roots = check_gc_roots(path_count.unwrap_or(1))?;
    let trace = args.trace.as_deref().map(|file| Trace::create(file, name));
    let trace = trace.transpose()?;
    let key_files = request.target.secret_key_files();
    secret_key_warnings(key_files, &options::environment())
        .iter()
        .for_each(warn);
    for error in request.unusable_netrc_files() {
        warn(copy::ignored_netrc_file(&error));
    }
    let open = request.open_sources()?;
    for (name, error) in &open.sources.unavailable {
        warn(copy::skipped_source(name, error));
    }
    let mut open = request.open_target(open)?;
    if let Some(error) = open.not_writable.take_if(|_| gc_roots.are_requested()) {
        return Err(error.into());
    }
    if path_count.is_none() {
        gc_roots = check_gc_roots(open.specs.len())?;
        if open.specs.is_empty() {
            eprint_line(copy::NO_PATHS_TO_COPY);
        }
    }
    let summary = run_with_display(&open, trace, &relay);
    if open.is_new && !request.target.is_new() {
        report_created(&*request.target);
    }
    let summary = summary?;
    if summary.reused > 0 || copy_options.reuse.is_used() && !copy_options.dry_run {
        eprint_line(copy::reuse_summary(&summary));
    }
    if let (Some(store), []) = (&open.local_store, summary.failures.as_slice()) {
        gc_roots.create(store, &summary.requested_paths)?;
    }
    if args.json {
        print_json(&open, &summary, began)?;
    } else if copy_options.dry_run {
        print_plan(&summary, open.target.store_dir())?;
    } else {
        for path in &summary.requested_paths {
            print(open.target.store_dir().full_path(path))?;
        }
    }
    if let Some(store) = &open.local_store {
        // The user has the result meanwhile.
        store.wait_for_background_sync();
    }
    report_failures(&summary)
}

fn report_created(target: &dyn StoreConfig) {
    match is_json() {
        true => write_event(
            Level::Info,
            "created",
            json!({ "target": target.to_string() }),
        ),
        false => eprint_line(copy::created(target)),
    }
}

/// Runs the copy with its display, and removes the bars before it returns, so that later lines
/// appear below the last line of progress.
fn run_with_display(
    open: &OpenCopy<'_>,
    trace: Option<Trace>,
    relay: &Relay,
) -> Result<CopySummary, Error> {
    let observers = Arc::new(CopyObservers {
        display: progress_display(),
        trace,
        limit: RepeatLimit::default(),
    });
    *relay.observers() = Some(observers.clone());
    let result = open.run(&*observers);
    *relay.observers() = None;
    let (failures, paths) = (
        observers.limit.hidden_failures(),
        observers.limit.hidden_signatures(),
    );
    // The bars must not be drawn below the following lines.
    drop(observers);
    if paths > 0 {
        warn(copy::more_dropped_signatures(paths));
    }
    if failures > 0 {
        eprint_line(format_args!("floe: {}", copy::more_failures(failures)));
    }
    result
}

/// Prints the number of paths that failed, and returns the exit code of the most severe failure.
fn report_failures(summary: &CopySummary) -> anyhow::Result<()> {
    let failed = summary.failed_paths();
    if failed == 0 {
        return Ok(());
    }
    let line = copy::failed(failed);
    if !is_json() {
        eprint_error(line.as_str());
    }
    let kind = ErrorKind::most_severe(&summary.failures);
    Err(exit::failures(&line, failed, kind))
}

/// The recipients of a copy's events.
struct CopyObservers {
    display: Box<dyn EventSink>,
    trace: Option<Trace>,
    /// JSON lines have no limit, because programs read them.
    limit: RepeatLimit,
}

impl EventSink for CopyObservers {
    fn event(&self, event: Event<'_>) {
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
struct Relay(Mutex<Option<Arc<CopyObservers>>>);

impl Relay {
    /// Holds the lock during an event, so that the caller drops the last reference.
    fn observers(&self) -> MutexGuard<'_, Option<Arc<CopyObservers>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Relay {
    fn event(&self, event: Event<'_>) {
        match &*self.observers() {
            Some(observers) => observers.event(event),
            None => line_display().event(event),
        }
    }
}

fn print_plan(summary: &CopySummary, dir: &StoreDir) -> anyhow::Result<()> {
    if let Some(space) = &summary.space {
        // stdout has the plan.
        eprint_line(copy::space(space));
    }
    for (path, nar_size, download) in &summary.planned {
        let download = download.map_or_else(|| "?".to_owned(), |size| size.to_string());
        let path = dir.full_path(path);
        print(format_args!("{path} {nar_size} {download}"))?;
    }
    Ok(())
}

fn print_json(open: &OpenCopy<'_>, summary: &CopySummary, began: Instant) -> anyhow::Result<()> {
    let dir = open.target.store_dir();
    let already_valid = match &open.local_store {
        Some(store) => store
            .closure_len(&summary.requested_paths)?
            .saturating_sub(summary.copied),
        None => summary.already_valid,
    };
    let paths = summary.requested_paths.iter();
    let mut object = json!({
        "paths": paths.map(|path| dir.full_path(path)).collect::<Vec<_>>(),
        "copied": summary.copied,
        "alreadyValid": already_valid,
        "downloadBytes": summary.download_bytes,
        "narBytes": summary.nar_bytes,
        "reusedPaths": summary.reused,
        "reusedNarBytes": summary.reused_nar_bytes,
        "seconds": began.elapsed().as_secs_f64(),
    });
    if open.options.dry_run {
        let planned = summary.planned.iter().map(|(path, nar_size, download)| {
            json!({ "path": dir.full_path(path), "narSize": nar_size, "downloadSize": download })
        });
        object["planned"] = planned.collect();
        insert_space(&mut object, summary.space.as_ref());
    }
    print(object)
}

/// Adds the needed and the free space to the JSON object of a dry run. An empty plan writes nothing
/// and has no file system.
fn insert_space(object: &mut Value, space: Option<&Space>) {
    object["writeBytes"] = json!(space.map_or(0, |space| space.write_bytes));
    object["writeInodesEstimate"] = json!(space.map_or(0, |space| space.write_inodes));
    let Some(space) = space else { return };
    let file_system = &space.file_system;
    object["freeBytes"] = json!(file_system.free_bytes);
    object["freeInodes"] = json!(file_system.free_inodes);
    object["fileSystem"] = json!({
        "mountPoint": file_system.mount_point.display().to_string(),
        "kind": file_system.kind,
    });
}
