//! What install and copy have in common: open both ends, move, say what became of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use floe_engine::{
    ClosureCopy, CopyOptions, CopySummary, Event, EventSink, NetworkEvents, NetworkOptions,
    PathSpec, SourceOrder, Sources, StoreUri, Target,
};
use floe_format::StoreDir;
use floe_store::WriteOptions;
use serde_json::json;

use super::keep::Keep;
use super::mount;
use super::print;
use super::space::{add_space, say_space};
use crate::args::{FilesArgs, KeepArgs, TraceArgs};
use crate::display::trace::Trace;
use crate::display::{self, Level, say, warn};
use crate::display::{display, lines};
use crate::failure::{Silent, Usage, gravest};
use crate::messages::taken;
use crate::settings;

/// A move that a user asked for.
pub(crate) struct Move {
    pub(crate) sources: Vec<StoreUri>,
    pub(crate) order: SourceOrder,
    pub(crate) network: NetworkOptions,
    pub(crate) target: StoreUri,
    pub(crate) store_dir: Option<StoreDir>,
    pub(crate) options: CopyOptions,
    pub(crate) write: WriteOptions,
    pub(crate) json: bool,
    pub(crate) files: FilesArgs,
    pub(crate) keep: KeepArgs,
    pub(crate) trace: TraceArgs,
    /// Of the command.
    pub(crate) name: &'static str,
    /// `None`: everything.
    pub(crate) paths: Option<Vec<String>>,
}

/// Moves, and prints the roots or the JSON object.
pub(crate) fn run_move(request: Move) -> anyhow::Result<()> {
    let began = Instant::now();
    settings::end_on_signals(&request.options.cancel)?;
    if let (StoreUri::Local(store), false) = (&request.target, request.options.dry_run) {
        // Before any other thread begins, which would stay where the mount is read-only.
        mount::make_writable(&store.layout.real_store_dir)?;
    }
    // What can be known to fail is not fetched first.
    let named = named(&request)?;
    check_files(&request)?;
    let mut keep = Keep::check(&request.keep, &request.target, named.unwrap_or(1))?;
    let trace = &request.trace.trace;
    let trace = trace
        .as_deref()
        .map(|file| Trace::create(file, request.name));
    let trace = trace.transpose()?;
    settings::warn_of_logins(&request.sources, &request.network);
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
        warn(format_args!("going on without {name}: {error}"));
    }
    let first_dir = sources
        .iter()
        .next()
        .map(|source| source.store_dir().clone());
    // A new cache takes over the store directory of what is copied into it.
    let dir = request.store_dir.clone().or(first_dir);
    let target = match request.options.dry_run {
        true => Target::open_read_only(&request.target, dir.as_ref())?,
        false => Target::open(&request.target, dir.as_ref(), &request.write)?,
    };
    let roots = roots(&request, &sources, target.store_dir())?;
    if named.is_none() {
        keep = Keep::check(&request.keep, &request.target, roots.len())?;
    }
    let watchers = Arc::new(Watchers {
        display: display(),
        trace,
    });
    relay.lead_to(Some(watchers.clone()));
    let copy = ClosureCopy {
        sources: &sources,
        target: &target,
        options: &request.options,
        events: &*watchers,
    };
    let outcome = copy.run(&roots);
    relay.lead_to(None);
    // Whatever is said from here on stands below the bars.
    drop(watchers);
    let outcome = outcome?;
    if outcome.reused > 0 || !request.files.reuse.is_empty() && !request.options.dry_run {
        say(taken(&outcome));
    }
    if let (Some(store), []) = (target.as_store(), outcome.failures.as_slice()) {
        keep.make(store, &outcome.requested_paths)?;
    }
    if request.json {
        print_json(&outcome, &target, request.options.dry_run, began)?;
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
            let things = if unmoved == 1 { "path" } else { "paths" };
            let line = format!("{unmoved} {things} could not be moved");
            let code = gravest(&outcome.failures);
            match display::speaks_json() {
                true => {
                    let fields = json!({ "message": line, "failed": unmoved, "exitCode": code });
                    display::write(Level::Error, "error", fields);
                }
                false => say(format_args!("floe: {line}")),
            }
            Err(Silent(code).into())
        }
    }
}

/// Who hears of a move.
struct Watchers {
    display: Box<dyn EventSink>,
    trace: Option<Trace>,
}

impl EventSink for Watchers {
    fn event(&self, event: Event<'_>) {
        if let Some(trace) = &self.trace {
            trace.event(&event);
        }
        self.display.event(event);
    }
}

/// Hears of the network also while nothing is shown of the move: before it has begun.
#[derive(Default)]
struct Relay(Mutex<Option<Arc<Watchers>>>);

impl Relay {
    fn lead_to(&self, watchers: Option<Arc<Watchers>>) {
        *self.watchers() = watchers;
    }

    /// Held while something is told, so that the last one to let go is who has made them.
    fn watchers(&self) -> MutexGuard<'_, Option<Arc<Watchers>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Relay {
    fn event(&self, event: Event<'_>) {
        match &*self.watchers() {
            Some(watchers) => watchers.event(event),
            None => lines().event(event),
        }
    }
}

/// How many roots a store is to get, where they are named.
fn named(request: &Move) -> anyhow::Result<Option<usize>> {
    match (&request.target, &request.paths) {
        (StoreUri::Local(store), Some(paths)) => {
            Ok(Some(parse(paths, &store.layout.store_dir)?.len()))
        }
        (_, paths) => Ok(paths.as_ref().map(Vec::len)),
    }
}

/// What concerns the files of a store makes no sense for a cache.
fn check_files(request: &Move) -> anyhow::Result<()> {
    match request.target {
        StoreUri::Local(_) => Ok(()),
        _ if request.files.optimise || !request.files.reuse.is_empty() => {
            Err(Usage(NO_FILES.into()).into())
        }
        _ => Ok(()),
    }
}

/// Each of them once, in whatever words it is named.
fn parse(paths: &[String], dir: &StoreDir) -> anyhow::Result<Vec<PathSpec>> {
    let mut roots = Vec::new();
    for text in paths {
        let root = PathSpec::parse(text, dir)?;
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    Ok(roots)
}

fn roots(request: &Move, sources: &Sources, dir: &StoreDir) -> anyhow::Result<Vec<PathSpec>> {
    if let Some(paths) = &request.paths {
        return parse(paths, dir);
    }
    let mut roots = Vec::new();
    for source in sources.iter() {
        match source.all_paths()? {
            Some(paths) => roots.extend(paths.into_iter().map(PathSpec::Path)),
            None => {
                let name = source.name();
                return Err(Usage(format!(
                    "{name} cannot list its paths; name the ones to copy"
                ))
                .into());
            }
        }
    }
    Ok(roots)
}

fn print_plan(outcome: &CopySummary, dir: &StoreDir) -> anyhow::Result<()> {
    outcome.space.iter().for_each(say_space);
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
    target: &Target,
    dry_run: bool,
    began: Instant,
) -> anyhow::Result<()> {
    let dir = target.store_dir();
    let reused = match target.as_store() {
        Some(store) => {
            let closure = store.closure_len(&outcome.requested_paths)?;
            closure.saturating_sub(outcome.copied)
        }
        None => 0,
    };
    let mut object = json!({
        "paths": outcome.requested_paths.iter().map(|path| dir.full_path(path)).collect::<Vec<_>>(),
        "fetched": outcome.copied,
        "reused": reused,
        "downloadBytes": outcome.download_bytes,
        "narBytes": outcome.nar_bytes,
        "takenPaths": outcome.reused,
        "takenNarBytes": outcome.reused_nar_bytes,
        "seconds": began.elapsed().as_secs_f64(),
    });
    if dry_run {
        let planned = outcome.planned.iter().map(|(path, nar_size, download)| {
            json!({ "path": dir.full_path(path), "narSize": nar_size, "downloadSize": download })
        });
        object["planned"] = planned.collect();
        add_space(&mut object, outcome.space.as_ref());
    }
    print(object)?;
    Ok(())
}

/// A cache holds NARs, and no files that could be one or come from elsewhere.
const NO_FILES: &str = "--optimise and --reuse are for the files of a local store, and the target \
                        is a binary cache";
