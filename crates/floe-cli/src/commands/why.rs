//! `floe why`: shows why an install of a path would succeed or fail.

pub(crate) mod args;
mod closure;
mod json;
pub(crate) mod page;
mod text;
mod trust;

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{
    AvailabilityQuery, PathAvailability, RequestedPaths, SourceOrder, SourceResult, Sources,
};
use floe_format::{StoreDir, StorePath};
use floe_store::{Root, StoreReader};
use floe_transfer::{
    Cancel, CopyOptions, Error, ErrorKind, Events, PathSpec, RetryPolicy, Session, Source,
    StoreConfig,
};

use crate::copying::warn_of_unavailable;
use crate::display::{Display, warn};
use crate::exit;
use crate::messages::counted;
use crate::options::Settings;
use crate::package_names::PackageNames;
use crate::path_names;
use crate::root_links::warn_of_unreadable;
use crate::signals;
use args::WhyArgs;
use closure::InstallClosure;
use trust::Trust;

pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, args.store_dir.as_deref())?;
    let store = settings.store(args.local.choice(), StoreAccess::Read)?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let events = Events::new(Arc::new(Display::default()));
    let session = Session::new(cancel.clone(), events)
        .with_options::<Network>(settings.network(args.refresh));
    let request =
        settings.copy_from(&args.from, store.clone(), RequestedPaths::Named(Vec::new()))?;
    let texts = requested(args, &settings, (&*store, &request.sources))?;
    let sources = match Sources::open(&request.sources, request.order, &session) {
        // The path may be valid, and the error is a part of the answer.
        Err(error) if !matches!(error, Error::Cancelled) => {
            warn(&error);
            Sources::new(Vec::new(), RetryPolicy::default())
        }
        opened => opened?,
    };
    warn_of_unavailable(&sources);
    let opened_store = open_store(&store, &session)?;
    let dir = match (&opened_store, store.layout()) {
        (Some(opened), _) => opened.store_dir().clone(),
        (None, Some(layout)) => layout.store_dir.clone(),
        (None, None) => settings.context.store_dir.clone().unwrap_or_default(),
    };
    let options = CopyOptions {
        trusted_keys: settings.trusted_keys(&args.trust)?,
        check_signatures: settings.check_signatures(&args.trust, &*store),
        closure_limit: settings.closure_limit(),
        cancel,
        ..CopyOptions::default()
    };
    let query = AvailabilityQuery {
        store: opened_store.as_deref(),
        store_dir: &dir,
        sources: &sources,
        options: &options,
    };
    let paths = texts.iter().map(|text| find_path(text, &query));
    let paths = paths.collect::<Result<Vec<_>, _>>()?;
    let explanation = Explanation {
        found: query.run(&paths)?,
        paths,
        dir: &dir,
        sources: &sources,
        store: (&*store, &store.to_string()),
        trust: &Trust {
            settings: &settings,
            args: &args.trust,
            keys: &options.trusted_keys,
        },
    };
    if args.json {
        json::print_json(&explanation)?;
    } else {
        text::print_text(&explanation)?;
    }
    explanation.result()
}

/// All that is known about some paths.
pub(super) struct Explanation<'a> {
    paths: Vec<StorePath>,
    found: BTreeMap<StorePath, PathAvailability>,
    dir: &'a StoreDir,
    sources: &'a Sources,
    /// The store, and its URI.
    store: (&'a dyn StoreConfig, &'a str),
    trust: &'a Trust<'a>,
}

/// A root that keeps a path, with the chain from one to the other.
pub(super) struct Keeper {
    root: Root,
    chain: Vec<StorePath>,
}

impl Explanation<'_> {
    /// Returns the roots that keep a valid path of a local store; `None` of another store.
    fn keepers(&self, path: &StorePath) -> anyhow::Result<Option<Vec<Keeper>>> {
        let (store, _) = self.store;
        let Some(layout) = store.layout() else {
            return Ok(None);
        };
        let reader = StoreReader::open(layout.clone())?;
        let found = reader.find_roots(store.facts().runtime_roots)?;
        warn_of_unreadable(&found.unreadable);
        let targets: Vec<StorePath> = found.roots.iter().map(|root| root.path.clone()).collect();
        let graph = reader.reference_graph(&targets)?;
        let keepers = found.roots.into_iter().filter_map(|root| {
            let chain = graph.chain(&root.path, path)?;
            let chain = chain.into_iter().cloned().collect();
            Some(Keeper { root, chain })
        });
        Ok(Some(keepers.collect()))
    }

    /// Succeeds if an install of all paths would.
    fn result(&self) -> anyhow::Result<()> {
        let closures = self
            .paths
            .iter()
            .map(|path| InstallClosure::of(path, &self.found));
        let missing: BTreeMap<_, _> = closures.flat_map(|closure| closure.missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let replies = missing.values().flat_map(|path| &path.replies);
        let refusals = replies.filter_map(|reply| match &reply.result {
            SourceResult::Refused(error) => Some(error),
            SourceResult::Usable | SourceResult::Absent => None,
        });
        let kind = refusals.map(Error::kind).max().unwrap_or(ErrorKind::Failed);
        let count = missing.len();
        let message = format!(
            "an install would fail: {} cannot be fetched",
            counted(count, "path")
        );
        Err(exit::failures(&message, count, kind))
    }
}

/// Returns the texts of the paths, as an install finds them.
fn requested(
    args: &WhyArgs,
    settings: &Settings,
    (store, sources): (&dyn StoreConfig, &[Arc<dyn StoreConfig>]),
) -> anyhow::Result<Vec<String>> {
    let paths = settings.follow_links(&args.paths, &[store])?;
    let store_dir = store.layout().map(|layout| &layout.store_dir);
    let mut packages = PackageNames::new(settings, &args.names, (store_dir, args.refresh))?;
    if !args.from.is_empty() {
        packages.set_caches(sources);
    }
    Ok(packages
        .resolve(&args.paths, path_names::as_files(paths))?
        .texts)
}

/// Opens the store for queries. Returns `None` if it does not exist yet.
fn open_store(
    store: &Arc<dyn StoreConfig>,
    session: &Session,
) -> anyhow::Result<Option<Arc<dyn Source>>> {
    if store.is_new() {
        return Ok(None);
    }
    let opened = Sources::open(std::slice::from_ref(store), SourceOrder::AsListed, session)?;
    Ok(opened.list.into_iter().next())
}

/// Returns the path of a text, which may have only the hash part.
fn find_path(text: &str, query: &AvailabilityQuery<'_>) -> anyhow::Result<StorePath> {
    let spec = match PathSpec::parse(text, query.store_dir)? {
        PathSpec::Path(path) => return Ok(path),
        spec => spec,
    };
    let caches = query.sources.list.iter().map(|source| &**source);
    let sources: Vec<&dyn Source> = query.store.into_iter().chain(caches).collect();
    for source in &sources {
        if let Ok(Some(found)) = source.query_path_info(&spec, &query.options.cancel) {
            return Ok(found.info.path);
        }
    }
    let sources = sources.iter().map(|source| source.name()).collect();
    let path = spec.text();
    Err(Error::NotFound { path, sources }.into())
}
