//! `floe cache`: looks after whole binary caches.

pub(crate) mod args;
mod delete;
mod info;
mod list;
pub(crate) mod page;
mod verify;

use std::sync::Arc;

use anyhow::bail;
use floe_cache::Network;
use floe_config::{StoreAccess, StoreChoice};
use floe_format::StoreDir;
use floe_store::WriteOptions;
use floe_transfer::{
    CacheContents, CacheInventory, Cancel, Error, Events, OpenTarget, Session, StoreConfig,
    TargetContext,
};
use serde_json::json;

use crate::display::{Display, eprint_line};
use crate::exit::UsageError;
use crate::options::Settings;
use crate::signals;
use crate::stdout::print;
use args::{CacheArgs, CacheCommand, InitArgs};

pub(crate) fn run(command: &CacheCommand) -> anyhow::Result<()> {
    match command {
        CacheCommand::Init(args) => init(args),
        CacheCommand::Info(args) => info::run(args),
        CacheCommand::List(args) => list::run(args),
        CacheCommand::Verify(args) => verify::run(args),
        CacheCommand::Delete(args) => delete::run(args),
    }
}

/// Makes a cache that does not exist.
fn init(args: &InitArgs) -> anyhow::Result<()> {
    let cache = OpenCache::open_or_new(&args.of, args.store_dir.as_deref(), false)?;
    let target = &*cache.opened.target;
    let is_new = !cache.inventory()?.exists();
    target.prepare()?;
    let store = &cache.store;
    if args.of.json {
        print(json!({ "cache": store.to_string(), "created": is_new }))?;
    }
    let dir = target.store_dir();
    eprint_line(if is_new {
        format!("created {store} for paths in {dir}")
    } else {
        format!("nothing to do: {store} is a cache for paths in {dir}")
    });
    Ok(())
}

/// A cache that is open for its maintenance.
struct OpenCache {
    settings: Settings,
    store: Arc<dyn StoreConfig>,
    opened: OpenTarget,
    cancel: Cancel,
    /// Dropped after the cache.
    _session: Session,
}

impl OpenCache {
    /// Opens a cache that exists.
    /// With `is_read_only`, the user need not be allowed to write it.
    fn open(args: &CacheArgs, is_read_only: bool) -> anyhow::Result<OpenCache> {
        let cache = OpenCache::open_or_new(args, None, is_read_only)?;
        if !cache.inventory()?.exists() {
            let reason = "there is no binary cache; floe cache init makes one";
            return Err(Error::fetch(&cache.store.to_string(), reason, false).into());
        }
        Ok(cache)
    }

    fn open_or_new(
        args: &CacheArgs,
        store_dir: Option<&str>,
        is_read_only: bool,
    ) -> anyhow::Result<OpenCache> {
        let settings = Settings::load(&args.options, store_dir)?;
        let store = settings.store(StoreChoice::Uri(&args.cache), StoreAccess::Read)?;
        if store.layout().is_some() || store.facts().can_substitute {
            bail!(UsageError(format!(
                "cannot use {store}: it is a store and no binary cache; give file:///DIR or \
                 s3://BUCKET"
            )));
        }
        let cancel = Cancel::default();
        signals::cancel_on_signals(&cancel)?;
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
            settings,
            store,
            opened,
            cancel,
            _session: session,
        })
    }

    fn inventory(&self) -> anyhow::Result<&dyn CacheInventory> {
        let inventory = self.opened.target.as_inventory();
        Ok(inventory.ok_or(Error::Internal("a cache has no inventory"))?)
    }

    /// Reads all narinfos, and lists the files of NARs.
    fn contents(&self) -> anyhow::Result<CacheContents> {
        Ok(self.inventory()?.list(&self.cancel)?)
    }

    fn dir(&self) -> &StoreDir {
        self.opened.target.store_dir()
    }
}
