//! The paths that a command asks a store or cache for.

use std::sync::Arc;

use anyhow::bail;
use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{SourceOrder, Sources};
use floe_store::StoreLayout;
use floe_transfer::{
    Cancel, Error, Events, PathSpec, QueriedClosure, Session, Source, StoreConfig,
};

use crate::args::{LocalStoreArgs, NameArgs, OptionArgs, PathArgs, SourceArgs};
use crate::display::Display;
use crate::links::StoreNames;
use crate::options::Settings;
use crate::package_names::lock::check_source;
use crate::package_names::{First, PackageNames};
use crate::path_names;

/// A store or cache that is open for queries.
pub(crate) struct OpenSource {
    settings: Settings,
    session: Session,
    sources: Sources,
    /// The directories of a local store.
    layout: Option<StoreLayout>,
    /// The cache, if the user names one.
    caches: Vec<Arc<dyn StoreConfig>>,
    refreshes: bool,
}

impl OpenSource {
    /// Opens the store or cache of the arguments.
    ///
    /// Errors: those of the arguments and of the store.
    pub(crate) fn open(
        args: &SourceArgs,
        local: &LocalStoreArgs,
        options: &OptionArgs,
    ) -> anyhow::Result<OpenSource> {
        let settings = Settings::load(options, args.store_dir.as_deref())?;
        let config = settings.store_or(args.from.as_deref(), local, StoreAccess::Read)?;
        let layout = config.layout().cloned();
        let events = Events::new(Arc::new(Display::default()));
        let session = Session::new(Cancel::default(), events)
            .with_options::<Network>(settings.network(args.refresh));
        let caches = args.from.iter().map(|_| config.clone()).collect();
        let sources = Sources::open(&[config], SourceOrder::AsListed, &session)?;
        if sources.list.is_empty() {
            bail!("cannot find a store; try --from URL");
        }
        Ok(OpenSource {
            settings,
            session,
            sources,
            layout,
            caches,
            refreshes: args.refresh,
        })
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.sources.list[0]
    }

    /// Returns the paths that the user wants.
    ///
    /// Errors: a name or a path cannot be understood; those of stdin and of name sources.
    pub(crate) fn requested(
        &self,
        paths: &PathArgs,
        names: &NameArgs,
    ) -> anyhow::Result<Vec<PathSpec>> {
        let source = (self.source(), self.layout.as_ref());
        requested(paths, source, Some(&mut self.packages(names)?))
    }

    /// Returns the texts of the paths, or of files in paths, that the user wants.
    ///
    /// Errors: as [`OpenSource::requested`].
    pub(crate) fn requested_texts(
        &self,
        paths: &PathArgs,
        names: &NameArgs,
    ) -> anyhow::Result<Vec<String>> {
        let source = (self.source(), self.layout.as_ref());
        requested_texts(paths, source, Some(&mut self.packages(names)?))
    }

    fn packages<'a>(&'a self, names: &'a NameArgs) -> anyhow::Result<PackageNames<'a>> {
        let options = (Some(self.source().store_dir()), self.refreshes);
        let mut packages = PackageNames::new(&self.settings, names, options)?;
        packages.set_caches(&self.caches);
        Ok(packages)
    }

    /// The directories of a local store.
    pub(crate) fn layout(&self) -> Option<&StoreLayout> {
        self.layout.as_ref()
    }

    /// Queries paths, with their closures if wanted.
    pub(crate) fn query(
        &self,
        specs: &[PathSpec],
        recursive: bool,
    ) -> anyhow::Result<QueriedClosure> {
        let limits = (self.settings.closure_limit(), &self.session.cancel);
        Ok(self.source().query_closure(specs, recursive, limits)?)
    }
}

/// Returns the requested paths. `layout` is that of a local store.
pub(crate) fn requested(
    args: &PathArgs,
    (source, layout): (&dyn Source, Option<&StoreLayout>),
    packages: Option<&mut PackageNames<'_>>,
) -> anyhow::Result<Vec<PathSpec>> {
    if args.all {
        let source_name = source.name();
        let all = source.query_all_valid_paths()?;
        let all = all.ok_or(Error::Unlistable { source_name })?;
        return Ok(all.into_iter().map(PathSpec::Path).collect());
    }
    let texts = requested_texts(args, (source, layout), packages)?;
    let specs = texts
        .iter()
        .map(|text| PathSpec::parse(text, source.store_dir()));
    Ok(specs.collect::<Result<_, _>>()?)
}

/// Returns the texts of the paths, or of files in paths, that the arguments name.
fn requested_texts(
    args: &PathArgs,
    (source, layout): (&dyn Source, Option<&StoreLayout>),
    packages: Option<&mut PackageNames<'_>>,
) -> anyhow::Result<Vec<String>> {
    let store_dir = source.store_dir();
    let (arguments, packages) = (args.read()?, packages.filter(|it| it.are_enabled()));
    Ok(match (layout, packages) {
        (Some(layout), Some(packages)) => {
            let texts = path_names::follow_links(layout, &arguments)?;
            packages
                .find((&arguments, texts), (layout, First::Store))?
                .texts
        }
        (Some(layout), None) => path_names::follow(layout, &arguments)?,
        (None, packages) => {
            let names = StoreNames {
                store_dir: store_dir.clone(),
                real_store_dir: None,
            };
            let texts = path_names::as_files(names.follow(&arguments));
            match packages {
                Some(packages) => {
                    let found = packages.resolve(&arguments, texts)?;
                    check_source(source, &found.names, &Cancel::default())?;
                    found.texts
                }
                None => texts,
            }
        }
    })
}
