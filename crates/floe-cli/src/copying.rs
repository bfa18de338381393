//! A copy of a command: opens sources and target, copies, makes roots, and reports the outcome.
//! `install`, `copy`, `push`, `run`, `shell` and `nix-copy-closure` use it.

mod action;
mod args;
mod follow;
mod gc_roots;
mod observers;
mod report;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::bail;
use floe_config::secret_key_warnings;
use floe_copy::{CopyRequest, CopySummary, OpenCopy, RequestedPaths, Sources};
use floe_format::StorePath;
use floe_names::ResolvedName;
use floe_store::StoreLayout;
use floe_transfer::{CopyOptions, Error, Events, Size, StoreConfig, Target};

use crate::args::PathArgs;
use crate::display::trace::Trace;
use crate::display::{eprint_line, set_target, warn};
use crate::exit::UsageError;
use crate::messages::counted;
use crate::options::{self, Settings};
use crate::package_names::lock::check_target;
use crate::package_names::{FindEarlier, First, MissingName, PackageNames};
use crate::path_names;
use crate::signals;
use crate::stdout::print;
use crate::writable_mount::make_writable;
pub(crate) use action::CopyAction;
pub(crate) use args::TransferArgs;
use gc_roots::{GcRootLinks, RootChange};
use observers::{CopyObservers, run_with_display};

/// A command that copies.
#[derive(Clone, Copy)]
pub(crate) struct Copying<'a> {
    pub(crate) action: CopyAction,
    pub(crate) settings: &'a Settings,
    pub(crate) args: &'a TransferArgs,
    /// The names of packages among the arguments.
    pub(crate) names: &'a [ResolvedName],
    /// Finds an earlier path of a name whose path no source has.
    pub(crate) earlier: &'a FindEarlier<'a>,
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

impl Follow {
    /// Returns the paths that are copied first, which may be names of paths of the source. With
    /// `--follow`, those of stdin come later.
    pub(crate) fn first_paths(
        &self,
        args: &PathArgs,
        packages: &mut PackageNames<'_>,
        (source, target): (&dyn StoreConfig, &dyn StoreConfig),
    ) -> anyhow::Result<(RequestedPaths, Vec<ResolvedName>)> {
        if args.all {
            return Ok((RequestedPaths::All, Vec::new()));
        }
        let arguments = match self {
            Follow::No => args.read()?,
            _ => args.named(),
        };
        let paths = packages
            .settings
            .follow_links(&arguments, &[target, source])?;
        let found = match source.layout() {
            Some(layout) if packages.are_enabled() => {
                packages.find((&arguments, paths), (layout, First::Store))?
            }
            Some(layout) => path_names::resolve_all(layout, paths)?.into(),
            None => packages.resolve(&arguments, path_names::as_files(paths))?,
        };
        Ok((RequestedPaths::Named(found.texts), found.names))
    }
}

/// Refuses a parameter that looks like that of a key and is none. Nothing would be signed, and no
/// client would accept the paths.
fn check_key_parameters(target: &dyn StoreConfig) -> anyhow::Result<()> {
    let facts = target.facts();
    let mut ignored = facts.ignored_parameters.iter();
    match ignored.find(|parameter| parameter.names_a_key()) {
        None => Ok(()),
        Some(parameter) => bail!(UsageError(format!(
            "cannot sign for {}: {} is no parameter of it; use secret-key=FILE, or \
             secret-keys=FILES for several keys",
            parameter.uri, parameter.name
        ))),
    }
}

impl Copying<'_> {
    /// Copies, and prints the requested paths or the JSON object.
    pub(crate) fn run(self, request: CopyRequest) -> anyhow::Result<()> {
        let began = Instant::now();
        set_target(request.target.to_string());
        let observers = Arc::new(CopyObservers::new(self.args.stats));
        let request = self.complete(request, &observers)?;
        check_target(&request.target, self.names, self.settings)?;
        let stop = Arc::default();
        match self.follow {
            Follow::Store(_) => signals::raise_on_signals(&stop)?,
            _ => signals::cancel_on_signals(&request.options.cancel)?,
        }
        let mut opened = self.open(&request, &observers)?;
        let summary = opened.copy(stop);
        observers.set_trace(None);
        if opened.open.is_new && !request.target.is_new() {
            report::created(&*request.target);
        }
        let mut summary = summary?;
        if summary.reused > 0 || request.options.reuse.is_used() && !request.options.dry_run {
            eprint_line(format_args!(
                "reused {} of this machine ({} unpacked) instead of fetching them",
                counted(summary.reused, "path"),
                Size(summary.reused_nar_bytes)
            ));
        }
        if let Some(number) = report::missing_name(&summary, self.names)
            && let Some(earlier) = (self.earlier)(&self.names[number])
            && !request.options.cancel.is_raised()
        {
            return Err(MissingName { number, earlier }.into());
        }
        let mut changes = Vec::new();
        if summary.failures.is_empty() {
            changes = opened.make_roots(&mut summary)?;
        }
        opened.report(&summary, began, &changes)
    }

    /// Adds what the arguments and the settings say to a request.
    fn complete(
        &self,
        request: CopyRequest,
        observers: &Arc<CopyObservers>,
    ) -> anyhow::Result<CopyRequest> {
        let Copying { settings, args, .. } = self;
        let locked = self.names.iter();
        let locked = locked.filter_map(|name| Some((name.path.clone(), name.nar_hash?)));
        let options = CopyOptions {
            nar_hashes: locked.collect(),
            ..args.options(settings, &request)?
        };
        Ok(CopyRequest {
            network: settings.network(args.refresh),
            store_dir: settings.context.store_dir.clone(),
            write: settings.write_options(&options.cancel)?,
            options,
            events: Events::new(observers.clone()),
            ..request
        })
    }

    /// Opens sources and target, after the checks that need neither.
    fn open<'a>(
        &'a self,
        request: &'a CopyRequest,
        observers: &'a CopyObservers,
    ) -> anyhow::Result<Opened<'a>> {
        let (args, settings) = (self.args, self.settings);
        if let (Some(layout), false) = (request.target.layout(), request.options.dry_run) {
            // Must come before any other thread starts: such a thread would keep the read-only
            // mount.
            make_writable(&layout.real_store_dir)?;
        }
        check_key_parameters(&*request.target)?;
        let checked = request.check()?;
        let path_count = checked.path_count();
        let check_gc_roots = |paths| GcRootLinks::check(args, settings, &*request.target, paths);
        let mut gc_roots = check_gc_roots(path_count.unwrap_or(1))?;
        let trace = args.trace.as_deref();
        let trace = trace.map(|file| Trace::create(file, self.action.name()));
        observers.set_trace(trace.transpose()?);
        let key_files = request.target.facts().secret_key_files;
        secret_key_warnings(key_files, &options::environment())
            .iter()
            .for_each(warn);
        let mut open = checked.open(warn_of_unavailable)?;
        if let Some(error) = open.not_writable.take_if(|_| gc_roots.are_requested()) {
            return Err(error.into());
        }
        if path_count.is_none() {
            gc_roots = check_gc_roots(open.specs.len())?;
            if open.specs.is_empty() {
                eprint_line("copied 0 paths: the source has no valid paths");
            }
        }
        Ok(Opened {
            command: self,
            request,
            open,
            gc_roots,
            observers,
        })
    }
}

/// Warns of the sources that could not be opened.
pub(crate) fn warn_of_unavailable(sources: &Sources) {
    for (name, error) in &sources.unavailable {
        warn(skipped_source(name, error));
    }
}

fn skipped_source(name: &str, error: &Error) -> String {
    format!("skipping source {name}: {error}")
}

/// A copy whose sources and target are open.
struct Opened<'a> {
    command: &'a Copying<'a>,
    request: &'a CopyRequest,
    open: OpenCopy<'a>,
    gc_roots: GcRootLinks,
    observers: &'a CopyObservers,
}

impl Opened<'_> {
    /// Copies the requested paths, and those that come later. `stop` ends the watch of a store.
    fn copy(&mut self, stop: Arc<AtomicBool>) -> anyhow::Result<CopySummary> {
        let lines = match self.command.follow {
            Follow::No => return Ok(self.copy_once()?),
            Follow::Stdin => follow::read_in_background()?,
            Follow::Store(layout) => follow::watch_in_background(layout, stop)?,
        };
        follow::run(self, &lines)
    }

    /// Copies the paths that are requested now.
    fn copy_once(&self) -> Result<CopySummary, Error> {
        run_with_display(&self.open, self.observers, self.command.action)
    }

    /// Makes the roots of the copied paths. Returns those that have changed.
    fn make_roots(&self, summary: &mut CopySummary) -> anyhow::Result<Vec<RootChange>> {
        match (
            &self.open.local_store,
            self.request.target.facts().root_layout,
        ) {
            (Some(store), _) => self.gc_roots.create(store, &summary.requested_paths),
            (None, Some(layout)) if !self.open.options.dry_run => {
                Ok(self.make_roots_at(layout, summary)?)
            }
            (None, _) => Ok(Vec::new()),
        }
    }

    /// Makes the roots of a copy to a store behind a daemon. If a collection has deleted a path
    /// before it had a root, copies again, over new connections: a daemon remembers for each
    /// connection which paths are valid.
    fn make_roots_at(
        &self,
        layout: &StoreLayout,
        summary: &mut CopySummary,
    ) -> Result<Vec<RootChange>, Error> {
        let create = |target: &dyn Target, paths: &[StorePath]| {
            self.gc_roots.create_at((target, layout), paths)
        };
        let mut result = create(&*self.open.target, &summary.requested_paths);
        for _ in 1..ROUNDS_MAX {
            let Err(Error::Vanished { path }) = &result else {
                break;
            };
            warn(format_args!(
                "copying {path} again: a garbage collection has deleted it"
            ));
            let again = self.request.open()?;
            let round = run_with_display(&again, self.observers, self.command.action)?;
            summary.requested_paths.clear();
            summary.add(round);
            if !summary.failures.is_empty() {
                return Ok(Vec::new());
            }
            result = create(&*again.target, &summary.requested_paths);
        }
        result
    }

    /// Prints the result on stdout, and the outcome on stderr.
    fn report(
        &self,
        summary: &CopySummary,
        began: Instant,
        changes: &[RootChange],
    ) -> anyhow::Result<()> {
        self.print_result(summary, began)?;
        if let Some(times) = &self.observers.times {
            times.lines().into_iter().for_each(eprint_line);
        }
        let Copying {
            action, is_result, ..
        } = *self.command;
        let target = &*self.request.target;
        let dir = self.open.target.store_dir();
        let is_kept = self.gc_roots.are_requested() || !is_result;
        report::done(
            action,
            (&self.open, summary),
            began.elapsed(),
            (target, is_kept),
            (changes, self.gc_roots.would_change(dir, &self.open.specs)),
        )?;
        if let (Some(layout), []) = (target.layout(), summary.failures.as_slice()) {
            let data_home = self.command.settings.context.data_home.as_deref();
            let is_default = *layout == StoreLayout::auto(data_home);
            let made = self.gc_roots.made(&summary.requested_paths);
            report::dangling_links(layout, is_default, &made);
        }
        if let Some(store) = &self.open.local_store {
            // The user has the result meanwhile.
            store.wait_for_background_sync();
        }
        report::failures(summary)
    }

    fn print_result(&self, summary: &CopySummary, began: Instant) -> anyhow::Result<()> {
        let Copying {
            args,
            follow,
            is_result,
            ..
        } = *self.command;
        if args.json {
            return report::print_json((&self.open, self.command.names), summary, began);
        }
        let dir = self.open.target.store_dir();
        if self.open.options.dry_run {
            return report::print_plan(summary, dir);
        }
        // Further paths were printed as they came.
        if is_result && matches!(follow, Follow::No) {
            for path in &summary.requested_paths {
                print(dir.full_path(path))?;
            }
        }
        Ok(())
    }
}

/// The number of attempts to give the copied paths roots before a collection deletes them. The wait
/// for the end of a collection is part of each attempt, so a second one is rare.
const ROUNDS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn skipped_source_is_named_with_the_cause() {
        let error = Error::Fetch {
            url: "https://cache.example.org/nix-cache-info".into(),
            reason: "connection refused".into(),
            transient: false,
            status: None,
            retry_after: None,
        };
        expect![
            "skipping source https://cache.example.org: cannot fetch https://cache.example.org/nix-cache-info: connection refused"
        ]
        .assert_eq(&skipped_source("https://cache.example.org", &error));
    }
}
