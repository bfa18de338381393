//! The one way from `--root`, `--store`, `--from` and `--to` to a store.

use std::sync::Arc;

use anyhow::bail;
use floe_config::{StoreAccess, StoreChoice};
use floe_copy::{CopyRequest, RequestedPaths, SourceOrder, check_writable};
use floe_store::{FoundRoots, LockWait, StoreLayout, StoreReader};
use floe_transfer::{Error, IgnoredParameter, StoreConfig};
use rustix::process::geteuid;

use crate::args::{LocalStoreArgs, OptionArgs, StoreQueryArgs};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::options::{self, Settings};
use crate::root_links::warn_of_unreadable;
use crate::writable_mount::make_writable;

impl LocalStoreArgs {
    /// Returns the choice of the flags.
    pub(crate) fn choice(&self) -> StoreChoice<'_> {
        StoreChoice::of_flags(self.root.as_deref(), self.store.as_deref())
    }
}

impl Settings {
    /// Returns a store or cache, and warns of the parameters of its URI without effect.
    pub(crate) fn store(
        &self,
        choice: StoreChoice<'_>,
        access: StoreAccess,
    ) -> anyhow::Result<Arc<dyn StoreConfig>> {
        let store = self.config.resolve_store(choice, access, &self.context)?;
        warn_of_ignored(store.facts().ignored_parameters);
        Ok(store)
    }

    /// Returns the store or cache of a URI, else the local store of the flags.
    pub(crate) fn store_or(
        &self,
        uri: Option<&str>,
        local: &LocalStoreArgs,
        access: StoreAccess,
    ) -> anyhow::Result<Arc<dyn StoreConfig>> {
        self.store(uri.map_or(local.choice(), StoreChoice::Uri), access)
    }

    /// Returns a copy into a target from the sources of `--from`, in the given order, else from the
    /// configured substituters, by their priority.
    ///
    /// A substituter that floe cannot use is ignored with a warning: Nix, which shares the
    /// configuration, may be able to use it.
    pub(crate) fn copy_from(
        &self,
        named: &[String],
        target: Arc<dyn StoreConfig>,
        paths: RequestedPaths,
    ) -> anyhow::Result<CopyRequest> {
        let (sources, order) = if named.is_empty() {
            (self.substituters()?, SourceOrder::ByPriority)
        } else {
            let named = named.iter().map(|uri| self.source(uri));
            (named.collect::<anyhow::Result<_>>()?, SourceOrder::AsListed)
        };
        Ok(CopyRequest {
            order,
            ..CopyRequest::new(sources, target, paths)
        })
    }

    /// Returns the store or cache of a URI, where `auto` is the store of this machine or user, not
    /// the configured one.
    pub(crate) fn source(&self, uri: &str) -> anyhow::Result<Arc<dyn StoreConfig>> {
        let store = StoreChoice::Uri(uri).resolve(&self.context)?;
        warn_of_ignored(store.facts().ignored_parameters);
        Ok(store)
    }

    fn substituters(&self) -> anyhow::Result<Vec<Arc<dyn StoreConfig>>> {
        let (sources, errors) = self.config.substituters(&self.context);
        for error in errors {
            warn(ignored_substituter(&error));
        }
        for source in &sources {
            warn_of_ignored(source.facts().ignored_parameters);
        }
        if sources.is_empty() {
            bail!(UsageError(
                "cannot fetch anything: no usable substituter is configured; name a cache with \
                 --from"
                    .into()
            ));
        }
        Ok(sources)
    }
}

fn ignored_substituter(error: &Error) -> String {
    format!("ignoring substituter: {error}")
}

/// Returns why a command for local stores cannot use a store of another kind.
pub(crate) fn why_not_local(store: &dyn StoreConfig) -> &'static str {
    // Only a store with substituters of its own is behind a daemon.
    if store.facts().can_substitute {
        "floe cannot do this through a daemon; leave out --store for the store of this machine, or \
         run floe on the machine of the store"
    } else {
        "it is a binary cache; name a store with --root or --store"
    }
}

/// Warns of parameters of store URIs that have no effect.
pub(crate) fn warn_of_ignored(parameters: &[IgnoredParameter]) {
    parameters.iter().for_each(warn);
}

/// The local store of a command, and the settings that apply to it.
pub(crate) struct LocalStore {
    pub(crate) settings: Settings,
    pub(crate) config: Arc<dyn StoreConfig>,
    pub(crate) layout: StoreLayout,
}

impl LocalStore {
    /// Finds the store.
    ///
    /// Errors: it is not a local store.
    pub(crate) fn find(args: &StoreQueryArgs) -> anyhow::Result<LocalStore> {
        LocalStore::of(&args.local, &args.options)
    }

    /// Finds the store of these arguments.
    ///
    /// Errors: it is not a local store.
    pub(crate) fn of(local: &LocalStoreArgs, options: &OptionArgs) -> anyhow::Result<LocalStore> {
        let settings = Settings::load(options, None)?;
        let config = settings.store(local.choice(), StoreAccess::Read)?;
        let Some(layout) = config.layout().cloned() else {
            bail!(UsageError(format!(
                "cannot use {config}: {}",
                why_not_local(&*config)
            )));
        };
        Ok(LocalStore {
            settings,
            config,
            layout,
        })
    }

    /// Tells a user whose own store is not chosen any more, because the machine has one now.
    pub(crate) fn note_hidden_store(&self) {
        let data_home = self.settings.context.data_home.as_ref();
        let own = data_home.map(|home| home.join("nix/root"));
        let Some(own) = own.filter(|own| own.join("nix/var/nix/db/db.sqlite").exists()) else {
            return;
        };
        if self.layout == StoreLayout::system() && !geteuid().is_root() {
            let state_dir = self.layout.state_dir.display();
            let own = own.display();
            eprint_line(format_args!(
                "{state_dir} exists, so this is the store of the machine; your own store in {own} \
                 is there with --root {own}"
            ));
        }
    }

    /// Opens the store for reading.
    pub(crate) fn open(&self) -> anyhow::Result<StoreReader> {
        self.open_with(options::lock_wait(Default::default()))
    }

    /// Opens the store for reading. `lock_wait` tells how it waits for locks.
    pub(crate) fn open_with(&self, lock_wait: LockWait) -> anyhow::Result<StoreReader> {
        Ok(StoreReader::open_with(self.layout.clone(), lock_wait)?)
    }

    /// Opens the store for reading, and finds all its roots.
    pub(crate) fn open_and_find_roots(&self) -> anyhow::Result<(StoreReader, FoundRoots)> {
        let store = self.open()?;
        let found = store.find_roots(self.config.facts().runtime_roots)?;
        warn_of_unreadable(&found.unreadable);
        Ok((store, found))
    }

    /// Makes the store directory writable for this process. Must come before any other thread
    /// starts: such a thread would keep the read-only mount.
    ///
    /// Errors: the URI of the store forbids writing, or the system does.
    pub(crate) fn prepare_writing(&self) -> anyhow::Result<()> {
        check_writable(&*self.config)?;
        make_writable(&self.layout.real_store_dir)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use floe_config::{Config, Environment, ProcessUser};
    use floe_transfer::UriContext;

    use super::*;

    #[test]
    fn unusable_substituters_are_named() {
        let variables = [
            ("NIX_CONF_DIR", "/nonexistent"),
            ("NIX_USER_CONF_FILES", ""),
            ("NIX_CONFIG", "substituters = gs://bucket"),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::new(variables, ProcessUser::current());
        let settings = Settings {
            config: Config::load(&environment, &[]).unwrap(),
            context: UriContext::default(),
        };
        let (_, errors) = settings.config.substituters(&settings.context);
        expect![[
            r#"ignoring substituter: cannot use "gs://bucket" as a store or binary cache: floe does not support this object store; use s3:// with its endpoint if it has one, or copy to file://DIR and upload that directory"#
        ]]
        .assert_eq(&ignored_substituter(&errors[0]));
        let error = settings.substituters().map(drop).unwrap_err();
        expect![
            "cannot fetch anything: no usable substituter is configured; name a cache with --from"
        ]
        .assert_eq(&error.to_string());
    }
}
