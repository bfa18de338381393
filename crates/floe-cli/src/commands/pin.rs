//! `floe pin`, `floe unpin` and `floe pins`: signed names of paths in a binary cache.

pub(crate) mod args;
mod list;
pub(crate) mod page;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use floe_cache::Network;
use floe_config::{StoreAccess, StoreChoice, read_secret_keys};
use floe_copy::{SourceOrder, Sources};
use floe_format::pin::is_pin_name;
use floe_format::{HashPart, SecretKey, StoreDir, StorePath, base16};
use floe_names::{NewPin, PinError, PinsUri};
use floe_store::WriteOptions;
use floe_transfer::{
    Cancel, Error, Events, NamedObjects, OpenTarget, PathSpec, Session, StoreConfig, TargetContext,
};
use serde_json::json;

use super::random;
use crate::display::{Display, eprint_line, warn};
use crate::exit::UsageError;
use crate::options::{Settings, environment};
use crate::package_names::{package_name, seen_pins};
use crate::signals;
use crate::stdout::print;
use args::{PinArgs, UnpinArgs};
pub(crate) use list::run as pins;

pub(crate) fn run(args: &PinArgs) -> anyhow::Result<()> {
    check_name(&args.name)?;
    let mut settings = Settings::load(&args.options, None)?;
    set_keys(&mut settings, &args.secret_key_file)?;
    let cache = PinnedCache::open(&settings, args.to.as_deref())?;
    let keys = cache.secret_keys()?;
    // The lease keeps the path from a collection until the pin is there.
    let (store_dir, path, _lease) = cache.find_path(&settings, args)?;
    let address = PinsUri::of_cache(&cache.config.address()).map(|uri| uri.shown());
    let mut seen = seen_pins(&settings);
    let known_cache_id = address.as_deref().and_then(|it| seen.cache_id(it));
    let new = NewPin {
        name: &args.name,
        store_dir,
        path,
        new_cache_id: match known_cache_id {
            Some(id) if !args.allow_downgrade => id.to_owned(),
            _ => base16::encode(&random::<16>()?),
        },
        known_cache_id: known_cache_id.filter(|_| !args.allow_downgrade),
    };
    let trusted = settings.config.trusted_keys(Default::default());
    let cancel = &cache.session.cancel;
    let pinned = floe_names::pin(&*cache.objects, &new, (&keys, &trusted), cancel);
    let pinned = pinned.map_err(|error| cache.failed("pin", &args.name, error))?;
    let pin = pinned.pin;
    if let Some(error) = pinned.generation_error {
        warn(format_args!(
            "cannot record the generation of the pin, so that floe cache gc --keep-generations \
             will not find it once the pin has moved: {error}"
        ));
    }
    if let Some(address) = address {
        seen.record(&address, &pin, args.allow_downgrade);
        if let Err(error) = seen.save() {
            warn(format_args!(
                "cannot remember the serial number of the pin: {error}; an older pin would be \
                 accepted later"
            ));
        }
    }
    let signers: Vec<&str> = keys.iter().map(SecretKey::name).collect();
    if args.json {
        return print(json!({
            "name": pin.name,
            "path": pin.full_path(),
            "cache": cache.config.to_string(),
            "cacheId": pin.cache_id,
            "serial": pin.serial,
            "time": pin.time,
            "keys": signers,
        }));
    }
    eprint_line(format!(
        "pinned {} to {} in {}, signed by {}",
        pin.name,
        pin.full_path(),
        cache.config,
        signers.join(" and ")
    ));
    Ok(())
}

pub(crate) fn unpin(args: &UnpinArgs) -> anyhow::Result<()> {
    for name in &args.names {
        check_name(name)?;
    }
    let settings = Settings::load(&args.options, None)?;
    let cache = PinnedCache::open(&settings, args.to.as_deref())?;
    for name in &args.names {
        let deleted = floe_names::unpin(&*cache.objects, name, &cache.session.cancel);
        deleted.map_err(|error| cache.failed("unpin", name, error))?;
        eprint_line(format!("unpinned {name} in {}", cache.config));
    }
    Ok(())
}

/// A binary cache with pins.
struct PinnedCache {
    config: Arc<dyn StoreConfig>,
    session: Session,
    objects: Arc<dyn NamedObjects>,
}

impl PinnedCache {
    /// Opens a cache: the one that `uri` names, else that of the setting push-to.
    fn open(settings: &Settings, uri: Option<&str>) -> anyhow::Result<PinnedCache> {
        let uri = match uri.unwrap_or(settings.config.push_to.get()) {
            "" => bail!(UsageError(
                "cannot use pins: no cache is named; add --to URL, or set push-to in nix.conf"
                    .into()
            )),
            uri => uri,
        };
        let config = settings.store(StoreChoice::Uri(uri), StoreAccess::Read)?;
        let cancel = Cancel::default();
        signals::cancel_on_signals(&cancel)?;
        let events = Events::new(Arc::new(Display::default()));
        let session = Session::new(cancel, events).with_options::<Network>(settings.network(false));
        let Some(objects) = config.open_objects(&session)? else {
            bail!(UsageError(format!(
                "cannot use pins of {config}: it is not a binary cache; use https://HOST, \
                 s3://BUCKET or file:///DIR"
            )));
        };
        Ok(PinnedCache {
            config,
            session,
            objects,
        })
    }

    /// Reads the keys that sign pins.
    fn secret_keys(&self) -> anyhow::Result<Vec<SecretKey>> {
        let files = self.config.facts().secret_key_files;
        let (keys, warnings) = read_secret_keys(files, &environment())?;
        warnings.iter().for_each(warn);
        if keys.is_empty() {
            bail!(UsageError(
                "cannot sign the pin: no key is given; add --secret-key-file FILE, or set \
                 secret-key-files in nix.conf"
                    .into()
            ));
        }
        Ok(keys)
    }

    /// Returns the path of the arguments. Unless the user forbids it, asks the cache for the path.
    fn find_path(
        &self,
        settings: &Settings,
        args: &PinArgs,
    ) -> anyhow::Result<(StoreDir, StorePath, Option<OpenTarget>)> {
        let arguments = std::slice::from_ref(&args.path);
        let text = settings.follow_links(arguments, &[])?.remove(0);
        let default_dir = settings.context.store_dir.clone().unwrap_or_default();
        if args.no_check_path {
            let PathSpec::Path(path) = PathSpec::parse(&text, &default_dir)? else {
                bail!(UsageError(format!(
                    "cannot pin {text}: --no-check-path needs a whole store path"
                )));
            };
            let lease = self.keep(path.hash_part())?;
            return Ok((default_dir, path, lease));
        }
        let stores = [self.config.clone()];
        let sources = Sources::open(&stores, SourceOrder::AsListed, &self.session)?;
        let source = sources.list.first().ok_or(Error::NoSources)?;
        let dir = source.store_dir().clone();
        let spec = PathSpec::parse(&text, &dir)?;
        let lease = self.keep(spec.hash_part())?;
        match source.query_path_info(&spec, &self.session.cancel)? {
            Some(narinfo) => Ok((dir, narinfo.info.path, lease)),
            None => bail!(
                "cannot pin {text}: {} does not have it; push it first, or use --no-check-path",
                self.config
            ),
        }
    }

    /// Keeps a path from a collection until the returned value ends. Returns `None` if the cache
    /// cannot be collected.
    fn keep(&self, part: HashPart) -> anyhow::Result<Option<OpenTarget>> {
        if !self.objects.can_list() {
            return Ok(None);
        }
        let opened = self.config.open_target(&TargetContext {
            session: &self.session,
            store_dir: None,
            write: &WriteOptions::default(),
            dry_run: false,
            substitutes: false,
            build_logs: None,
        })?;
        if let Some(cache) = opened.target.as_inventory() {
            cache.keep(&[part])?;
        }
        Ok(Some(opened))
    }

    fn failed(&self, verb: &str, name: &str, error: PinError) -> anyhow::Error {
        match error {
            // The exit code is that of the request.
            PinError::Cache(error) => error.into(),
            error => anyhow!("cannot {verb} {name} in {}: {error}", self.config),
        }
    }
}

/// Sets the files of the keys: those of the arguments, else those of the settings.
fn set_keys(settings: &mut Settings, files: &[PathBuf]) -> anyhow::Result<()> {
    let configured = &settings.config.secret_key_files.get().0;
    let files = if files.is_empty() { configured } else { files };
    let files = files.iter().map(std::path::absolute);
    settings.context.further_secret_keys = files.collect::<Result<_, _>>()?;
    settings.context.secret_keys.clear();
    Ok(())
}

/// Checks that commands can take a name for the one of a pin.
fn check_name(name: &str) -> Result<(), UsageError> {
    let is_bare = package_name(name).is_some_and(|spec| spec.name == name);
    if is_bare && is_pin_name(name) {
        return Ok(());
    }
    Err(UsageError(format!(
        "cannot use {name:?} as the name of a pin: it has letters, digits, -, _ and dots, at most \
         128, it is not a hash part, and its last part is not the name of an output, such as dev"
    )))
}
