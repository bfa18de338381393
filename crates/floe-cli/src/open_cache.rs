//! A binary cache that is open for its maintenance.

use std::sync::Arc;

use floe_cache::Network;
use floe_format::StoreDir;
use floe_store::WriteOptions;
use floe_transfer::{
    CacheContents, CacheInventory, Cancel, Error, Events, OpenTarget, Session, StoreConfig, Target,
    TargetContext,
};

use crate::display::Display;
use crate::options::Settings;

/// A cache that is open for its maintenance.
pub(crate) struct OpenCache {
    opened: OpenTarget,
    cancel: Cancel,
    /// Dropped after the cache.
    _session: Session,
}

impl OpenCache {
    /// Opens a cache that exists. With `is_read_only`, the user need not be allowed to write it.
    ///
    /// Errors: there is none.
    pub(crate) fn open(
        settings: &Settings,
        store: &Arc<dyn StoreConfig>,
        is_read_only: bool,
        cancel: &Cancel,
    ) -> anyhow::Result<OpenCache> {
        let cache = OpenCache::open_or_new(settings, store, is_read_only, cancel)?;
        if !cache.inventory()?.exists() {
            let reason = "there is no binary cache; floe cache init makes one";
            return Err(Error::fetch(&store.to_string(), reason, false).into());
        }
        Ok(cache)
    }

    /// Opens a cache that need not exist. Creates none.
    pub(crate) fn open_or_new(
        settings: &Settings,
        store: &Arc<dyn StoreConfig>,
        is_read_only: bool,
        cancel: &Cancel,
    ) -> anyhow::Result<OpenCache> {
        let events = Events::new(Arc::new(Display::default()));
        let session =
            Session::new(cancel.clone(), events).with_options::<Network>(settings.network(true));
        let opened = store.open_target(&TargetContext {
            session: &session,
            store_dir: settings.context.store_dir.clone(),
            write: &WriteOptions::default(),
            dry_run: is_read_only,
            substitutes: false,
            build_logs: None,
        })?;
        Ok(OpenCache {
            opened,
            cancel: cancel.clone(),
            _session: session,
        })
    }

    /// Returns the interface to its objects.
    pub(crate) fn inventory(&self) -> anyhow::Result<&dyn CacheInventory> {
        let inventory = self.opened.target.as_inventory();
        Ok(inventory.ok_or(Error::Internal("a cache has no inventory"))?)
    }

    /// Reads all narinfos, and lists the files of NARs.
    pub(crate) fn contents(&self) -> anyhow::Result<CacheContents> {
        Ok(self.inventory()?.list(&self.cancel)?)
    }

    /// Returns the store directory of its paths.
    pub(crate) fn dir(&self) -> &StoreDir {
        self.opened.target.store_dir()
    }

    /// Returns the cache as a target.
    pub(crate) fn target(&self) -> &dyn Target {
        &*self.opened.target
    }
}
