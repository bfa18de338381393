//! The common part of `floe install` and `floe copy`: opens sources and target, copies, and
//! reports the outcome.

mod follow;
mod observers;
mod report;

use std::sync::Arc;
use std::time::Instant;

use floe_config::secret_key_warnings;
use floe_copy::{CopyRequest, CopySummary, OpenCopy};
use floe_format::StorePath;
use floe_store::StoreLayout;
use floe_transfer::{Error, Events, StoreConfig, Target};

use super::gc_roots::GcRootLinks;
use super::mount;
use super::print;
use crate::args::TransferArgs;
use crate::display::trace::Trace;
use crate::display::{eprint_line, warn};
use crate::messages::{copy, outcome};
use crate::options::{self, Settings};
use observers::{CopyObservers, run_with_display};

/// The command that copies.
#[derive(Clone, Copy)]
pub(crate) struct CopyCommand<'a> {
    /// `install` or `copy`.
    pub(crate) name: &'a str,
    pub(crate) settings: &'a Settings,
    pub(crate) args: &'a TransferArgs,
    /// Where further paths come from.
    pub(crate) follow: &'a Follow,
    /// Whether the paths are the result, which is printed.
    pub(crate) is_result: bool,
}

/// Where the paths of a copy come from after the first ones.
#[derive(Clone, Debug)]
pub(crate) enum Follow {
    No,
    /// The lines of stdin, copied as they arrive.
    Stdin,
    /// The paths that become valid in this store.
    Store(StoreLayout),
}

/// Copies, and prints the requested paths or the JSON object.
pub(crate) fn run_copy(request: CopyRequest, command: CopyCommand<'_>) -> anyhow::Result<()> {
    let began = Instant::now();
    let CopyCommand {
        name,
        settings,
        args,
        ..
    } = command;
    let observers = Arc::new(CopyObservers::new(args.stats));
    let copy_options = settings.copy_options(args, &request)?;
    let request = CopyRequest {
        network: settings.network(args.refresh),
        store_dir: settings.context.store_dir.clone(),
        write: settings.write_options(&copy_options.cancel)?,
        options: copy_options,
        events: Events::new(observers.clone()),
        ..request
    };
    let copy_options = &request.options;
    let stop = Arc::default();
    match command.follow {
        Follow::Store(_) => options::raise_on_signals(&stop)?,
        _ => options::cancel_on_signals(&copy_options.cancel)?,
    }
    if let (Some(layout), false) = (request.target.layout(), copy_options.dry_run) {
        // Must come before any other thread starts: such a thread would keep the read-only mount.
        mount::make_writable(&layout.real_store_dir)?;
    }
    // Fail early: validate before any download.
    let checked = request.check()?;
    let path_count = checked.path_count();
    let check_gc_roots = |paths| GcRootLinks::check(args, &*request.target, paths);
    let mut gc_roots = check_gc_roots(path_count.unwrap_or(1))?;
    let trace = args.trace.as_deref().map(|file| Trace::create(file, name));
    observers.set_trace(trace.transpose()?);
    let key_files = request.target.facts().secret_key_files;
    secret_key_warnings(key_files, &options::environment())
        .iter()
        .for_each(warn);
    let mut open = checked.open(|sources| {
        for (name, error) in &sources.unavailable {
            warn(copy::skipped_source(name, error));
        }
    })?;
    if let Some(error) = open.not_writable.take_if(|_| gc_roots.are_requested()) {
        return Err(error.into());
    }
    if path_count.is_none() {
        gc_roots = check_gc_roots(open.specs.len())?;
        if open.specs.is_empty() {
            eprint_line(copy::NO_PATHS_TO_COPY);
        }
    }
    let participle = outcome::participle(name);
    let further = match command.follow {
        Follow::No => None,
        Follow::Stdin => Some(follow::read_in_background()?),
        Follow::Store(layout) => Some(follow::watch_in_background(layout, stop)?),
    };
    // A line may be the real place of a path in any of them.
    let stores: Vec<&dyn StoreConfig> = request.sources.iter().map(|it| &**it).collect();
    let stores = [&[&*request.target], &*stores].concat();
    let summary = match further {
        Some(lines) => follow::run(
            (&mut open, &stores),
            &lines,
            (&observers, participle),
            command,
        ),
        None => run_with_display(&open, &observers, participle).map_err(Into::into),
    };
    observers.set_trace(None);
    if open.is_new && !request.target.is_new() {
        report::created(&*request.target);
    }
    let mut summary = summary?;
    if summary.reused > 0 || copy_options.reuse.is_used() && !copy_options.dry_run {
        eprint_line(copy::reuse_summary(&summary));
    }
    if summary.failures.is_empty() {
        match (&open.local_store, request.target.facts().root_layout) {
            (Some(store), _) => gc_roots.create(store, &summary.requested_paths)?,
            (None, Some(layout)) if !copy_options.dry_run => {
                let create = |target: &dyn Target, paths: &[StorePath]| {
                    gc_roots.create_at((target, layout), paths)
                };
                let shown = (&*observers, participle);
                create_roots_at(&request, (&open, &mut summary), shown, &create)?;
            }
            (None, _) => {}
        }
    }
    print_result(&open, &summary, command, began)?;
    let is_kept = gc_roots.are_requested() || !command.is_result;
    let target = (&*request.target, is_kept);
    if let Some(times) = &observers.times {
        times.stats().lines().into_iter().for_each(eprint_line);
    }
    report::done(participle, (&open, &summary), began.elapsed(), target)?;
    if let (Some(layout), []) = (request.target.layout(), summary.failures.as_slice()) {
        report::dangling_links(layout, &gc_roots.made(&summary.requested_paths));
    }
    if let Some(store) = &open.local_store {
        // The user has the result meanwhile.
        store.wait_for_background_sync();
    }
    report::failures(&summary)
}

/// Makes the roots of a copy to a store behind a daemon. If a collection has deleted a path before
/// it had a root, copies again, over new connections: a daemon remembers for each connection which
/// paths are valid.
fn create_roots_at(
    request: &CopyRequest,
    (open, summary): (&OpenCopy<'_>, &mut CopySummary),
    (observers, participle): (&CopyObservers, &str),
    create: &CreateRoots<'_>,
) -> Result<(), Error> {
    let mut result = create(&*open.target, &summary.requested_paths);
    for _ in 1..ROUNDS_MAX {
        let Err(Error::Vanished { path }) = &result else {
            break;
        };
        warn(copy::vanished_before_root(path));
        let again = request.open()?;
        let round = run_with_display(&again, observers, participle)?;
        summary.requested_paths.clear();
        summary.add(round);
        if !summary.failures.is_empty() {
            return Ok(());
        }
        result = create(&*again.target, &summary.requested_paths);
    }
    result
}

/// Makes roots for paths of a target.
type CreateRoots<'a> = dyn Fn(&dyn Target, &[StorePath]) -> Result<(), Error> + 'a;

/// The number of attempts to give the copied paths roots before a collection deletes them. The wait
/// for the end of a collection is part of each attempt, so a second one is rare.
const ROUNDS_MAX: usize = 3;

/// Prints the result on stdout.
fn print_result(
    open: &OpenCopy<'_>,
    summary: &CopySummary,
    command: CopyCommand<'_>,
    began: Instant,
) -> anyhow::Result<()> {
    if command.args.json {
        return report::print_json(open, summary, began);
    }
    if open.options.dry_run {
        return report::print_plan(summary, open.target.store_dir());
    }
    // Further paths were printed as they came.
    let is_printed = command.is_result && matches!(command.follow, Follow::No);
    let paths = summary.requested_paths.iter().filter(|_| is_printed);
    for path in paths {
        print(open.target.store_dir().full_path(path))?;
    }
    Ok(())
}
