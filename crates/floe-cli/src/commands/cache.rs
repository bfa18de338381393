//! `floe cache`: looks after whole binary caches.

pub(crate) mod args;
mod delete;
mod export;
mod gc;
mod import;
mod info;
mod list;
pub(crate) mod page;
mod repair;
mod rotate_key;
mod verify;

use std::io;
use std::sync::Arc;

use anyhow::bail;
use floe_config::{StoreAccess, StoreChoice};
use floe_transfer::{Cancel, StoreConfig};
use serde_json::json;

use crate::display::eprint_line;
use crate::exit::UsageError;
use crate::open_cache::OpenCache;
use crate::options::Settings;
use crate::signals;
use crate::stdout::print;
use args::{CacheArgs, CacheCommand, InitArgs};

pub(crate) fn run(command: &CacheCommand) -> anyhow::Result<()> {
    match command {
        CacheCommand::Init(args) => init(args),
        CacheCommand::Info(args) => info::run(args),
        CacheCommand::List(args) => list::run(args),
        CacheCommand::Gc(args) => gc::run(args),
        CacheCommand::Verify(args) => verify::run(args),
        CacheCommand::Repair(args) => repair::run(args),
        CacheCommand::RotateKey(args) => rotate_key::run(args),
        CacheCommand::Export(args) => export::run(args),
        CacheCommand::Import(args) => import::run(args),
        CacheCommand::Delete(args) => delete::run(args),
    }
}

/// Makes a cache that does not exist.
fn init(args: &InitArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, args.store_dir.as_deref())?;
    let cache = chosen.open_or_new(false)?;
    let target = cache.target();
    let is_new = !cache.inventory()?.exists();
    target.prepare()?;
    let store = &chosen.store;
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

/// The cache of the command line.
struct ChosenCache {
    settings: Settings,
    store: Arc<dyn StoreConfig>,
    cancel: Cancel,
}

impl ChosenCache {
    /// Finds the cache.
    ///
    /// Errors: it is a store.
    fn of(args: &CacheArgs, store_dir: Option<&str>) -> anyhow::Result<ChosenCache> {
        ChosenCache::with(args, store_dir, |_| Ok(()))
    }

    /// As [`ChosenCache::of`], with other defaults for the URI.
    fn with(
        args: &CacheArgs,
        store_dir: Option<&str>,
        set_defaults: impl FnOnce(&mut Settings) -> io::Result<()>,
    ) -> anyhow::Result<ChosenCache> {
        let mut settings = Settings::load(&args.options, store_dir)?;
        set_defaults(&mut settings)?;
        let store = settings.store(StoreChoice::Uri(&args.cache), StoreAccess::Read)?;
        if store.layout().is_some() || store.facts().can_substitute {
            bail!(UsageError(format!(
                "cannot use {store}: it is a store and no binary cache; give file:///DIR or \
                 s3://BUCKET"
            )));
        }
        let cancel = Cancel::default();
        signals::cancel_on_signals(&cancel)?;
        Ok(ChosenCache {
            settings,
            store,
            cancel,
        })
    }

    /// Opens the cache, which must exist.
    fn open(&self, is_read_only: bool) -> anyhow::Result<OpenCache> {
        OpenCache::open(&self.settings, &self.store, is_read_only, &self.cancel)
    }

    fn open_or_new(&self, is_read_only: bool) -> anyhow::Result<OpenCache> {
        OpenCache::open_or_new(&self.settings, &self.store, is_read_only, &self.cancel)
    }
}
