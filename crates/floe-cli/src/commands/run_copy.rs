//! The common part of `floe install` and `floe copy`: opens sources and target, copies, and
//! reports the outcome.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use floe_cache::NetworkOptions;
use floe_copy::{
    ClosureCopy, CopySummary, SourceOrder, Sources, open_read_only_target, open_target,
};
use floe_format::StoreDir;
use floe_store::WriteOptions;
use floe_transfer::{CopyOptions, Event, EventSink, NetworkEvents, PathSpec, StoreUri, Target};
use serde_json::json;

use super::disk_space::{insert_space, print_space};
use super::gc_roots::GcRootLinks;
use super::mount;
use super::print;
use crate::args::{GcRootArgs, StoreFileArgs, TraceArgs};
use crate::display::trace::Trace;
use crate::display::{self, Level, eprint_line, line_display, progress_display, warn};
use crate::exit::{AlreadyReported, UsageError, most_severe_code};
use crate::messages::copy;
use crate::options;

/// A copy as the command line requests it.
pub(crate) struct CopyRequest {
    pub(crate) sources: Vec<StoreUri>,
    pub(crate) order: SourceOrder,
    pub(crate) network: NetworkOptions,
    pub(crate) target: StoreUri,
    pub(crate) store_dir: Option<StoreDir>,
    pub(crate) options: CopyOptions,
    pub(crate) write: WriteOptions,
    pub(crate) json: bool,
    pub(crate) store_files: StoreFileArgs,
    pub(crate) gc_roots: GcRootArgs,
    pub(crate) trace: TraceArgs,
    /// The name of the command.
    pub(crate) name: &'static str,
    /// `None` means all paths of the source.
    pub(crate) paths: Option<Vec<String>>,
}

/// Copies, and prints the requested paths or the JSON object.
pub(crate) fn run_copy(request: CopyRequest) -> anyhow::Result<()> {
    let began = Instant::now();
    options::cancel_on_signals(&request.options.cancel)?;
    if let (StoreUri::Local(store), false) = (&request.target, request.options.dry_run) {
        // Must come before any other thread starts: such a thread would keep the read-only mount.
        mount::make_writable(&store.layout.real_store_dir)?;
    }
    // Fail early: validate before any download.
    let path_count = requested_path_count(&request)?;
    check_store_file_options(&request)?;
    let mut gc_roots =
        GcRootLinks::check(&request.gc_roots, &request.target, path_count.unwrap_or(1))?;
    let trace = &request.trace.trace;
    let trace = trace
        .as_deref()
        .map(|file| Trace::create(file, request.name));
    let trace = trace.transpose()?;
    options::warn_unusable_credentials(&request.sources, &request.network);
    let relay = Arc::new(Relay::default());
    let network = NetworkOptions {
        events: NetworkEvents::new(relay.clone()),
        ..request.network.clone()
    };
    let sources = Sources::open(
        &request.sources,
        request.order,
        &network,
        &request.options.cancel,
    )?;
    for (name, error) in sources.unavailable() {
        warn(copy::skipped_source(name, error));
    }
    let first_dir = sources
        .iter()
        .next()
        .map(|source| source.store_dir().clone());
    // A new cache gets the store directory of the first source.
    let dir = request.store_dir.clone().or(first_dir);
    let target = match request.options.dry_run {
        true => open_read_only_target(&request.target, dir.as_ref())?,
        false => open_target(&request.target, dir.as_ref(), &request.write)?,
    };
    let roots = path_specs(&request, &sources, target.store_dir())?;
    if path_count.is_none() {
        gc_roots = GcRootLinks::check(&request.gc_roots, &request.target, roots.len())?;
    }
    let observers = Arc::new(CopyObservers {
        display: progress_display(),
        trace,
    });
    relay.attach(Some(observers.clone()));
    let copy = ClosureCopy {
        sources: &sources,
        target: &*target,
        options: &request.options,
        events: &*observers,
    };
    let outcome = copy.run(&roots);
    relay.attach(None);
    // Removes the bars, so that later lines appear below the last line of progress.
    drop(observers);
    let outcome = outcome?;
    if outcome.reused > 0 || !request.store_files.reuse.is_empty() && !request.options.dry_run {
        eprint_line(copy::reuse_summary(&outcome));
    }
    if let (Some(store), []) = (target.as_local_store(), outcome.failures.as_slice()) {
        gc_roots.create(store, &outcome.requested_paths)?;
    }
    if request.json {
        print_json(&outcome, &*target, request.options.dry_run, began)?;
    } else if request.options.dry_run {
        print_plan(&outcome, target.store_dir())?;
    } else {
        for root in &outcome.requested_paths {
            print(target.store_dir().full_path(root))?;
        }
    }
    match outcome.failed_paths() {
        0 => Ok(()),
        unmoved => {
            let line = copy::failed(unmoved);
            let code = most_severe_code(&outcome.failures);
            match display::is_json() {
                true => {
                    let fields = json!({ "message": line, "failed": unmoved, "exitCode": code });
                    display::write_event(Level::Error, "error", fields);
                }
                false => eprint_line(format_args!("floe: {line}")),
            }
            Err(AlreadyReported(code).into())
        }
    }
}

/// The recipients of a copy's events.
struct CopyObservers {
    display: Box<dyn EventSink>,
    trace: Option<Trace>,
}

impl EventSink for CopyObservers {
    fn event(&self, event: Event<'_>) {
        if let Some(trace) = &self.trace {
            trace.event(&event);
        }
        self.display.event(event);
    }
}

/// Forwards network events, also before the display of the copy exists and after it has ended.
#[derive(Default)]
struct Relay(Mutex<Option<Arc<CopyObservers>>>);

impl Relay {
    fn attach(&self, observers: Option<Arc<CopyObservers>>) {
        *self.observers() = observers;
    }

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

/// Returns the number of requested paths, without duplicates if the target is a store. `None` means
/// all paths.
fn requested_path_count(request: &CopyRequest) -> anyhow::Result<Option<usize>> {
    match (&request.target, &request.paths) {
        (StoreUri::Local(store), Some(paths)) => Ok(Some(
            parse_path_specs(paths, &store.layout.store_dir)?.len(),
        )),
        (_, paths) => Ok(paths.as_ref().map(Vec::len)),
    }
}

/// Refuses options about the files of a store if the target is a cache.
fn check_store_file_options(request: &CopyRequest) -> anyhow::Result<()> {
    match request.target {
        StoreUri::Local(_) => Ok(()),
        _ if request.store_files.optimise || !request.store_files.reuse.is_empty() => {
            Err(UsageError(copy::NO_STORE_FILES_IN_CACHES.into()).into())
        }
        _ => Ok(()),
    }
}

/// Parses the requested paths, and removes duplicates in any spelling.
fn parse_path_specs(paths: &[String], dir: &StoreDir) -> anyhow::Result<Vec<PathSpec>> {
    let mut roots = Vec::new();
    for text in paths {
        let root = PathSpec::parse(text, dir)?;
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    Ok(roots)
}

fn path_specs(
    request: &CopyRequest,
    sources: &Sources,
    dir: &StoreDir,
) -> anyhow::Result<Vec<PathSpec>> {
    if let Some(paths) = &request.paths {
        return parse_path_specs(paths, dir);
    }
    let mut roots = Vec::new();
    for source in sources.iter() {
        match source.query_all_valid_paths()? {
            Some(paths) => roots.extend(paths.into_iter().map(PathSpec::Path)),
            None => {
                return Err(UsageError(copy::unlistable_source(source.name())).into());
            }
        }
    }
    Ok(roots)
}

fn print_plan(outcome: &CopySummary, dir: &StoreDir) -> anyhow::Result<()> {
    outcome.space.iter().for_each(print_space);
    for (path, nar_size, download) in &outcome.planned {
        let download = download.map_or_else(|| "?".to_owned(), |size| size.to_string());
        print(format_args!(
            "{} {nar_size} {download}",
            dir.full_path(path)
        ))?;
    }
    Ok(())
}

fn print_json(
    outcome: &CopySummary,
    target: &dyn Target,
    dry_run: bool,
    began: Instant,
) -> anyhow::Result<()> {
    let dir = target.store_dir();
    let already_valid = match target.as_local_store() {
        Some(store) => {
            let closure = store.closure_len(&outcome.requested_paths)?;
            closure.saturating_sub(outcome.copied)
        }
        None => 0,
    };
    let mut object = json!({
        "paths": outcome.requested_paths.iter().map(|path| dir.full_path(path)).collect::<Vec<_>>(),
        "copied": outcome.copied,
        "alreadyValid": already_valid,
        "downloadBytes": outcome.download_bytes,
        "narBytes": outcome.nar_bytes,
        "reusedPaths": outcome.reused,
        "reusedNarBytes": outcome.reused_nar_bytes,
        "seconds": began.elapsed().as_secs_f64(),
    });
    if dry_run {
        let planned = outcome.planned.iter().map(|(path, nar_size, download)| {
            json!({ "path": dir.full_path(path), "narSize": nar_size, "downloadSize": download })
        });
        object["planned"] = planned.collect();
        insert_space(&mut object, outcome.space.as_ref());
    }
    print(object)?;
    Ok(())
}
