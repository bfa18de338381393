//! A copy as a front end requests it: the command line and libfloe use the same.

mod requested;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use floe_cache::{Network, NetworkOptions};
use floe_format::{Realisation, StoreDir, StorePath};
use floe_hash::hash_pool::HashPool;
use floe_store::{StoreError, StoreReader, StoreWriter, WriteOptions};
use floe_transfer::{
    CopyOptions, DerivedPath, Error, Event, EventSink, Events, OpenTarget, PathSpec, Session,
    Source, StoreConfig, Target, TargetContext, UriContext,
};

use crate::copy::{ClosureCopy, CopySummary};
use crate::local::config::directory;
use crate::sources::{SourceOrder, Sources};
use crate::upstreams::present_in;
use requested::{FoundSpecs, RequestedSpec};

/// A request to copy closures.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// The sources.
    pub sources: Vec<Arc<dyn StoreConfig>>,
    /// The target.
    pub target: Arc<dyn StoreConfig>,
    /// The requested paths.
    pub paths: RequestedPaths,
    /// Caches from which the clients of a cache as target get some paths. The target need not have
    /// these.
    pub upstreams: Vec<Arc<dyn StoreConfig>>,
    /// Whether this concerns requested paths too, and not only their references.
    pub may_skip_requested: bool,
    /// The order in which sources are queried.
    pub order: SourceOrder,
    /// The options of requests to binary caches.
    pub network: NetworkOptions,
    /// The store directory of a new binary cache. The default is that of the first source.
    pub store_dir: Option<StoreDir>,
    /// The options of the copy.
    pub options: CopyOptions,
    /// Receives the events of opening the stores and of the copy.
    pub events: Events,
    /// The options for writing to a local store.
    pub write: WriteOptions,
    /// Whether the target itself first fetches missing paths from its substituters.
    pub substitute_on_destination: bool,
    /// The directory with the build logs of the source, if a binary cache as the target shall
    /// receive the logs of its new paths.
    pub build_logs: Option<PathBuf>,
}

/// The paths of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedPaths {
    /// All paths of all sources.
    All,
    /// Store paths, base names or hash parts.
    Named(Vec<String>),
}

impl CopyRequest {
    /// Makes a request with default options and the order of the list.
    pub fn new(
        sources: Vec<Arc<dyn StoreConfig>>,
        target: Arc<dyn StoreConfig>,
        paths: RequestedPaths,
    ) -> CopyRequest {
        CopyRequest {
            sources,
            target,
            paths,
            upstreams: Vec::new(),
            may_skip_requested: false,
            order: SourceOrder::AsListed,
            network: NetworkOptions::default(),
            store_dir: None,
            options: CopyOptions::default(),
            events: Events::default(),
            write: WriteOptions::default(),
            substitute_on_destination: false,
            build_logs: None,
        }
    }

    /// Checks the request before any connection.
    ///
    /// Errors: [`Error::InvalidStorePath`], [`Error::NotALocalStore`], [`Error::NotARemoteStore`].
    pub fn check(&self) -> Result<CheckedRequest<'_>, Error> {
        let layout = self.target.layout();
        if layout.is_none() && (self.options.optimise || self.options.reuse.is_used()) {
            return Err(Error::NotALocalStore {
                feature: "optimise or reuse",
                target: self.target.to_string(),
            });
        }
        if self.substitute_on_destination && !self.target.facts().can_substitute {
            return Err(Error::NotARemoteStore {
                target: self.target.to_string(),
            });
        }
        let requested = match (&self.paths, layout) {
            (RequestedPaths::Named(texts), Some(layout)) => {
                Some(RequestedSpec::parse_all(texts, &layout.store_dir)?)
            }
            _ => None,
        };
        Ok(CheckedRequest {
            request: self,
            requested,
        })
    }

    /// Checks the request, and opens the sources and the target.
    ///
    /// Errors: those of [`CopyRequest::check`] and [`CheckedRequest::open`].
    pub fn open(&self) -> Result<OpenCopy<'_>, Error> {
        self.check()?.open(|_| {})
    }

    /// Makes the session of the stores.
    fn session(&self) -> Session {
        let network = NetworkOptions {
            workers: HashPool::workers_for(self.options.jobs),
            ..self.network.clone()
        };
        Session::new(self.options.cancel.clone(), self.events.clone())
            .with_options::<Network>(network)
    }
}

/// A request that has passed the checks that need no connection.
#[derive(Debug)]
pub struct CheckedRequest<'a> {
    request: &'a CopyRequest,
    /// The requested paths and outputs, each once. `None` for all paths, and for a binary cache as
    /// target: its store directory is not known yet.
    requested: Option<Vec<RequestedSpec>>,
}

impl<'a> CheckedRequest<'a> {
    /// Returns the number of requested paths, without duplicates if the target is a store. `None`
    /// means that it is known once the stores are open: that of all paths, or of all outputs.
    pub fn path_count(&self) -> Option<usize> {
        match (&self.requested, &self.request.paths) {
            (_, RequestedPaths::Named(paths)) if paths.iter().any(|it| DerivedPath::is_one(it)) => {
                None
            }
            (Some(requested), _) => Some(requested.len()),
            (None, RequestedPaths::Named(paths)) => Some(paths.len()),
            (None, RequestedPaths::All) => None,
        }
    }

    /// Opens the sources, passes them to `report`, and opens the target.
    ///
    /// Errors: those of [`Sources::open`] and of the target; [`Error::Unlistable`] if all paths are
    /// requested and a source cannot list them; [`Error::InvalidStorePath`] if the target is a
    /// binary cache.
    pub fn open(self, report: impl FnOnce(&Sources)) -> Result<OpenCopy<'a>, Error> {
        let request = self.request;
        // The stores are dropped before the session, also after an error.
        let session = request.session();
        let (sources, target) = self.open_sources(&session)?;
        report(&sources);
        let all = match &request.paths {
            RequestedPaths::All => Some(all_paths(&sources)?),
            RequestedPaths::Named(_) => None,
        };
        let target = target.unwrap_or_else(|| {
            let first = sources.list.first();
            self.open_target(first.map(|first| first.store_dir().clone()), &session)
        })?;
        let requested = match (self.requested, &request.paths) {
            (None, RequestedPaths::Named(texts)) => {
                RequestedSpec::parse_all(texts, target.opened.target.store_dir())?
            }
            (known, _) => known.unwrap_or_default(),
        };
        let found = match all {
            Some(specs) => FoundSpecs::from(specs),
            None => {
                let ends = (&sources, &*target.opened.target);
                let layout = request.target.layout();
                let reader = || StoreReader::open(layout?.clone()).ok();
                FoundSpecs::find(requested, ends, reader, &request.options)
                    .inspect_err(|_| target.remove_if_unused())?
            }
        };
        let upstreams = match &*request.upstreams {
            [] => Vec::new(),
            stores => Sources::open(stores, SourceOrder::AsListed, &session)?.list,
        };
        Ok(OpenCopy {
            request,
            options: &request.options,
            upstreams,
            may_skip_requested: request.may_skip_requested,
            session,
            sources,
            target: target.opened.target,
            local_store: target.opened.local_store,
            is_new: target.is_new,
            not_writable: target.not_writable,
            specs: found.specs,
            realisations: found.realisations,
        })
    }

    /// Opens the sources, unless a local store as target has all requested paths. A new store opens
    /// while they connect. Returns the store, too.
    fn open_sources(
        &self,
        session: &Session,
    ) -> Result<(Sources, Option<Result<WritableTarget, Error>>), Error> {
        let request = self.request;
        // A local store does not depend on the sources.
        let is_independent = request.target.layout().is_some();
        let may_have_all = is_independent && !request.target.is_new();
        let mut target = may_have_all.then(|| self.open_target(None, session));
        if let Some(Ok(found)) = &target
            && self.has_all(&*found.opened.target)?
        {
            return Ok((Sources::none_needed(), target));
        }
        let opening = Sources::begin_open(&request.sources, request.order, session)?;
        if is_independent && target.is_none() {
            target = Some(self.open_target(None, session));
        }
        let error = match opening.wait() {
            Ok(sources) => return Ok((sources, target)),
            Err(error) => error,
        };
        if let Some(Ok(target)) = target
            && !matches!(error, Error::Cancelled)
        {
            target.remove_if_unused();
        }
        Err(error)
    }

    /// Opens the target. `store_dir` is the store directory of a new cache if the request names
    /// none.
    fn open_target(
        &self,
        store_dir: Option<StoreDir>,
        session: &Session,
    ) -> Result<WritableTarget, Error> {
        let request = self.request;
        let is_new = !request.options.dry_run && request.target.is_new();
        let mut context = TargetContext {
            session,
            store_dir: request.store_dir.clone().or(store_dir),
            write: &request.write,
            dry_run: request.options.dry_run,
            substitutes: request.substitute_on_destination,
            build_logs: request.build_logs.clone(),
        };
        let (opened, not_writable) = match request.target.open_target(&context) {
            Err(Error::Store(error)) if error.may_not_write() => {
                context.dry_run = true;
                match request.target.open_target(&context) {
                    Ok(opened) if self.has_all(&*opened.target)? => (opened, Some(error)),
                    _ => return Err(error.into()),
                }
            }
            opened => (opened?, None),
        };
        Ok(WritableTarget {
            opened,
            is_new: is_new && not_writable.is_none(),
            not_writable,
        })
    }

    /// Whether the target is a local store in which all requested paths are valid.
    fn has_all(&self, target: &dyn Target) -> Result<bool, Error> {
        let Some(requested) = &self.requested else {
            return Ok(false);
        };
        let mut valid = Vec::new();
        for spec in requested {
            let spec = match spec {
                RequestedSpec::Path(spec) => spec,
                // The sources may have a realisation that the target lacks.
                RequestedSpec::Outputs(_) => return Ok(false),
            };
            valid.extend(match spec {
                PathSpec::Path(path) => Some(path.clone()),
                PathSpec::HashPart(part) => match target.query_path_from_hash_part(*part)? {
                    None => return Ok(false),
                    found => found,
                },
            });
        }
        let mut seen = BTreeSet::new();
        while !valid.is_empty() {
            let missing = target.add_temp_roots_and_query_missing(&valid)?;
            if !missing.paths.is_empty() {
                return Ok(false);
            }
            // A store with damaged paths has to look at whole closures.
            seen.extend(valid);
            valid = missing.unchecked_references;
            valid.retain(|path| !seen.contains(path));
            valid.sort_unstable();
            valid.dedup();
        }
        Ok(true)
    }
}

/// An open target: see the fields of [`OpenCopy`].
#[derive(Debug)]
struct WritableTarget {
    opened: OpenTarget,
    is_new: bool,
    not_writable: Option<StoreError>,
}

impl WritableTarget {
    /// Removes a store that did not exist before and that no other process uses.
    fn remove_if_unused(&self) {
        if let Some(store) = &self.opened.local_store {
            store.remove_if_unused();
        }
    }
}

/// A copy whose sources and target are open.
#[derive(Debug)]
pub struct OpenCopy<'a> {
    request: &'a CopyRequest,
    /// The options of the copy.
    pub options: &'a CopyOptions,
    /// The sources.
    pub sources: Sources,
    /// The target.
    pub target: Arc<dyn Target>,
    /// The local store behind the target, if it is one and this is not a dry run.
    pub local_store: Option<Arc<StoreWriter>>,
    /// Whether the target did not exist before this request.
    pub is_new: bool,
    /// The reason why this user may not write the target. It has all requested paths.
    pub not_writable: Option<StoreError>,
    /// The requested paths, each once.
    pub specs: Vec<PathSpec>,
    /// The realisations of requested outputs, and those that these need, dependencies first.
    realisations: Vec<Realisation>,
    upstreams: Vec<Arc<dyn Source>>,
    may_skip_requested: bool,
    /// Dropped after the stores.
    session: Session,
}

impl OpenCopy<'_> {
    /// Copies. If the copy fails before the first path is valid, removes a store that did not exist
    /// before and that no other process uses. See [`ClosureCopy::run`].
    pub fn run(&self) -> Result<CopySummary, Error> {
        self.skip_paths_of_upstreams()?;
        let result = if self.sources.are_unneeded {
            self.run_without_sources()
        } else {
            self.run_from(&self.sources, &self.session.events)
        };
        let is_failed = |summary: &CopySummary| !summary.failures.is_empty();
        if let Some(store) = &self.local_store
            && result.as_ref().map_or(true, is_failed)
        {
            store.remove_if_unused();
        }
        result
    }

    fn run_from(&self, sources: &Sources, events: &dyn EventSink) -> Result<CopySummary, Error> {
        let copy = ClosureCopy {
            sources,
            target: &*self.target,
            options: self.options,
            events,
        };
        if self.realisations.is_empty() {
            return copy.run(&self.specs);
        }
        // The paths of realisations that the outputs need are not requested by the user.
        let mut specs = self.specs.clone();
        for realisation in &self.realisations {
            let spec = PathSpec::Path(realisation.out_path.clone());
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
        let mut summary = copy.run(&specs)?;
        let is_requested = |path: &StorePath| self.specs.iter().any(|spec| spec.matches(path));
        summary.requested_paths.retain(is_requested);
        if !self.options.dry_run && summary.failures.is_empty() {
            self.register_realisations(events)?;
        }
        Ok(summary)
    }

    fn register_realisations(&self, events: &dyn EventSink) -> Result<(), Error> {
        let Some(target) = self.target.as_realisation_target() else {
            // The paths are of use without them.
            events.event(Event::SkippedRealisations {
                count: self.realisations.len(),
            });
            return Ok(());
        };
        target.register_realisations(&self.realisations)
    }

    /// Runs the copy into a target that had all paths when it was opened. A collector before Nix
    /// 2.36 may delete them nevertheless. Then the copy needs its sources.
    fn run_without_sources(&self) -> Result<CopySummary, Error> {
        let quiet = WithoutFailures(&self.session.events);
        let summary = self.run_from(&self.sources, &quiet)?;
        if summary.failures.is_empty() {
            return Ok(summary);
        }
        let CopyRequest { sources, order, .. } = self.request;
        let sources = Sources::open(sources, *order, &self.session)?;
        self.run_from(&sources, &self.session.events)
    }

    /// Tells the target which paths it need not have.
    fn skip_paths_of_upstreams(&self) -> Result<(), Error> {
        let ([source], [_, ..]) = (&*self.sources.list, &*self.upstreams) else {
            return Ok(());
        };
        let path_of = |spec: &PathSpec| match spec {
            PathSpec::Path(path) => Some(path.clone()),
            PathSpec::HashPart(_) => None,
        };
        let paths: Vec<StorePath> = self.specs.iter().filter_map(path_of).collect();
        let mut closure = source.closures(&paths)?.unwrap_or_default();
        closure.retain(|path| self.may_skip_requested || !paths.contains(path));
        let present = present_in(&self.upstreams, &closure, &self.options.cancel)?;
        self.target.assume_present(&present);
        Ok(())
    }
}

/// Passes all events but failures, which a second attempt may mend.
struct WithoutFailures<'a>(&'a Events);

impl EventSink for WithoutFailures<'_> {
    fn event(&self, event: Event<'_>) {
        if !matches!(event, Event::Failed { .. }) {
            self.0.event(event);
        }
    }
}

/// Returns the directory with the paths of `store`, which the URI `text` names, or else the
/// directory `text`, whose entries are the paths themselves.
///
/// Errors: [`Error::InvalidStoreUri`] for a binary cache, and if there is no such directory.
pub fn reuse_directory(
    store: &dyn StoreConfig,
    text: &str,
    context: &UriContext,
) -> Result<PathBuf, Error> {
    let fail = |reason: &str| Error::InvalidStoreUri {
        text: store.to_string(),
        reason: reason.into(),
    };
    let layout = store
        .layout()
        .ok_or_else(|| fail("a binary cache has no files to reuse; name it with --from"))?;
    if layout.real_store_dir.is_dir() {
        return Ok(layout.real_store_dir.clone());
    }
    match directory(text, context.home.as_deref()) {
        Ok(directory) if directory.is_dir() => Ok(directory),
        _ => Err(fail(
            "there is neither a store nor a directory of store paths",
        )),
    }
}

fn all_paths(sources: &Sources) -> Result<Vec<PathSpec>, Error> {
    let mut specs = Vec::new();
    for source in &sources.list {
        let Some(paths) = source.query_all_valid_paths()? else {
            let source_name = source.name();
            return Err(Error::Unlistable { source_name });
        };
        specs.extend(paths.into_iter().map(PathSpec::Path));
    }
    Ok(specs)
}
