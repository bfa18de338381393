//! From flags, files and environment to the options of the libraries.

use std::env;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use floe_cache::NetworkOptions;
use floe_config::{Config, Environment, ProcessUser, store_in_root};
use floe_copy::{CopyRequest, resolve_store_uri, reuse_directory};
use floe_format::TrustedKeys;
use floe_store::{LockWait, StoreEvent, StoreEvents, WriteOptions};
use floe_transfer::{
    Cancel, CopyOptions, Error, IgnoredParameter, Reuse, StoreConfig, UriContext, parse_public_keys,
};

use crate::args::{OptionArgs, TransferArgs, TrustArgs};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::links::{StoreNames, existing_file};
use crate::messages::{self, copy, manage};
use crate::open_files::{self, limit_connections};

/// Returns the environment of this process. No other code reads variables for the configuration.
pub(crate) fn environment() -> Environment {
    Environment::new(env::vars_os(), ProcessUser::current())
}

/// The settings of a command that opens stores.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The defaults for store URIs.
    pub(crate) context: UriContext,
}

impl Settings {
    /// Loads the settings of files, environment, `--option` and `--store-dir`, and warns of unknown
    /// names.
    pub(crate) fn load(options: &OptionArgs, store_dir: Option<&str>) -> anyhow::Result<Settings> {
        let environment = environment();
        let context = environment.uri_context(store_dir)?;
        let config = Config::load(&environment, &options.pairs())?;
        for setting in &config.unknown_settings {
            warn(messages::unknown_setting(setting));
        }
        Ok(Settings { config, context })
    }

    /// Returns the store or cache of a URI.
    pub(crate) fn resolve(&self, uri: &str) -> anyhow::Result<Arc<dyn StoreConfig>> {
        let store = self.config.resolve_store_uri(uri, &self.context)?;
        warn_of_ignored(store.facts().ignored_parameters);
        Ok(store)
    }

    /// Returns the local store of `--root` and `--store`, else the default one.
    pub(crate) fn local_store(
        &self,
        root: Option<&Path>,
        store: Option<&str>,
    ) -> anyhow::Result<Arc<dyn StoreConfig>> {
        self.in_root_or(root, || self.resolve(store.unwrap_or("auto")))
    }

    /// Returns the store of `--root` and `--store` for writing, else the default one.
    pub(crate) fn target_store(
        &self,
        root: Option<&Path>,
        store: Option<&str>,
    ) -> anyhow::Result<Arc<dyn StoreConfig>> {
        self.in_root_or(root, || self.resolve_target(store.unwrap_or("auto")))
    }

    fn in_root_or(
        &self,
        root: Option<&Path>,
        resolve: impl FnOnce() -> anyhow::Result<Arc<dyn StoreConfig>>,
    ) -> anyhow::Result<Arc<dyn StoreConfig>> {
        match root {
            Some(root) => Ok(store_in_root(root, &self.context)?),
            None => resolve(),
        }
    }

    /// Returns the store or cache of a URI, for writing.
    pub(crate) fn resolve_target(&self, uri: &str) -> anyhow::Result<Arc<dyn StoreConfig>> {
        let store = self.config.resolve_target_uri(uri, &self.context)?;
        warn_of_ignored(store.facts().ignored_parameters);
        Ok(store)
    }

    /// Replaces arguments that lead into one of the local stores among `stores`, else into the
    /// configured store directory.
    pub(crate) fn follow_links(
        &self,
        arguments: &[String],
        stores: &[&dyn StoreConfig],
    ) -> Vec<String> {
        let layouts = stores.iter().filter_map(|store| store.layout());
        let mut names: Vec<StoreNames> = layouts.map(StoreNames::from).collect();
        if names.is_empty() {
            names.push(StoreNames {
                store_dir: self.context.store_dir.clone().unwrap_or_default(),
                real_store_dir: None,
            });
        }
        let followed = arguments.iter().map(|text| {
            let followed = names.iter().find_map(|names| names.follow_one(text));
            followed
                .or_else(|| existing_file(text))
                .unwrap_or_else(|| text.clone())
        });
        followed.collect()
    }

    /// Returns the sources of `--from`, else the configured substituters.
    ///
    /// A substituter that floe cannot use is ignored with a warning: Nix, which shares the
    /// configuration, may be able to use it.
    pub(crate) fn sources(&self, named: &[String]) -> anyhow::Result<Vec<Arc<dyn StoreConfig>>> {
        if !named.is_empty() {
            let parse = |text: &String| parse_store_uri(text, &self.context);
            return Ok(named.iter().map(parse).collect::<Result<_, _>>()?);
        }
        let (sources, errors) = self.config.substituters(&self.context);
        for error in errors {
            warn(copy::ignored_substituter(&error));
        }
        for source in &sources {
            warn_of_ignored(source.facts().ignored_parameters);
        }
        match sources.is_empty() {
            true => bail!(UsageError(copy::NO_SUBSTITUTER.into())),
            false => Ok(sources),
        }
    }

    /// Whether the configuration has a substituter that floe cannot use.
    pub(crate) fn has_unusable_substituter(&self) -> bool {
        !self.config.substituters(&self.context).1.is_empty()
    }

    /// Returns the options of requests. Raises the limit of open files, and keeps the number of
    /// connections far below it. `refresh` is the flag of that name.
    pub(crate) fn network(&self, refresh: bool) -> NetworkOptions {
        let mut network = self.config.network();
        network.connections = limit_connections(network.connections, open_files::raise());
        if refresh {
            network.refresh();
        }
        network
    }

    /// Returns the options of a copy: those of the arguments, and the others of the request.
    pub(crate) fn copy_options(
        &self,
        args: &TransferArgs,
        request: &CopyRequest,
    ) -> anyhow::Result<CopyOptions> {
        let (config, target) = (&self.config, &*request.target);
        // The setting does not concern a binary cache, but the flag is an error there.
        let optimise_by_config = *config.auto_optimise_store.get() && target.layout().is_some();
        Ok(CopyOptions {
            trusted_keys: self.trusted_keys(&args.trust)?,
            check_signatures: self.check_signatures(&args.trust, target),
            jobs: args.jobs,
            reuse: self.reuse(args)?,
            optimise: args.optimise || optimise_by_config,
            dry_run: args.dry_run,
            check_space: !args.no_check_space,
            ..request.options.clone()
        })
    }

    /// Whether paths into a target need a trusted signature.
    pub(crate) fn check_signatures(&self, args: &TrustArgs, target: &dyn StoreConfig) -> bool {
        let by_config = *self.config.require_sigs.get();
        target.facts().requires_signatures.unwrap_or(by_config) && !args.no_check_sigs
    }

    /// Returns the keys of the flags, else the configured ones, and in both cases the extra keys.
    pub(crate) fn trusted_keys(&self, args: &TrustArgs) -> Result<TrustedKeys, Error> {
        let several = args.trusted_public_keys.as_deref();
        let single = args.trusted_public_key.iter().map(String::as_str);
        let own: Vec<&str> = several.into_iter().chain(single).collect();
        let extra = args.extra_trusted_public_keys.iter().map(String::as_str);
        let extra = parse_public_keys(extra)?;
        if own.is_empty() {
            return Ok(self.config.trusted_keys(extra));
        }
        let mut keys = parse_public_keys(own)?;
        keys.extend(extra);
        Ok(keys)
    }

    /// Returns the stores of `--reuse`. A directory of store paths without a database counts as
    /// one.
    fn reuse(&self, args: &TransferArgs) -> Result<Reuse, Error> {
        let directories = args.reuse.iter();
        let directories = directories.map(|text| {
            let store = parse_store_uri(text, &self.context)?;
            reuse_directory(&*store, text, &self.context)
        });
        Ok(Reuse {
            directories: directories.collect::<Result<_, _>>()?,
            by: args.reuse_by.unwrap_or_default(),
        })
    }

    /// Returns the options for writing to a local store, and warns where the settings do not fit.
    pub(crate) fn write_options(&self, cancel: &Cancel) -> anyhow::Result<WriteOptions> {
        let (options, warning) = self.config.write_options()?;
        warning.into_iter().for_each(warn);
        let lock_wait = lock_wait(cancel.flag());
        Ok(WriteOptions {
            lock_wait,
            events: StoreEvents::new(report_store_event),
            ..options
        })
    }
}

/// Returns the store that a URI names, and warns of its parameters without effect.
pub(crate) fn parse_store_uri(
    text: &str,
    context: &UriContext,
) -> Result<Arc<dyn StoreConfig>, Error> {
    let store = resolve_store_uri(text, context)?;
    warn_of_ignored(store.facts().ignored_parameters);
    Ok(store)
}

/// Warns of parameters of store URIs that have no effect.
pub(crate) fn warn_of_ignored(parameters: &[IgnoredParameter]) {
    parameters.iter().for_each(warn);
}

/// Returns a lock wait that prints a line, and ends if the flag is raised.
pub(crate) fn lock_wait(cancelled: Arc<AtomicBool>) -> LockWait {
    LockWait::new(cancelled, |what| {
        eprint_line(messages::waiting_for_resource(what));
    })
}

fn report_store_event(event: StoreEvent) {
    match event {
        StoreEvent::CheckingPaths { paths } => eprint_line(messages::checking_paths(paths)),
        StoreEvent::LostRows { trees } => warn(messages::lost_rows(trees)),
        StoreEvent::LostSyncRecord { reason } => warn(messages::lost_sync_record(reason)),
        StoreEvent::RootNotRecorded { error } => warn(manage::root_not_recorded(&error)),
        _ => {}
    }
}

/// Makes the first SIGINT, SIGTERM or SIGHUP cancel the work, and the second one end the process.
pub(crate) fn cancel_on_signals(cancel: &Cancel) -> anyhow::Result<()> {
    raise_on_signals(&cancel.flag())
}

/// Makes the first of these signals raise a flag, and the second one end the process.
pub(crate) fn raise_on_signals(flag: &Arc<AtomicBool>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = [SIGINT, SIGTERM, SIGHUP];
    // A process that `nohup` has started ignores SIGHUP; one in the background of a script ignores
    // SIGINT.
    for signal in signals
        .into_iter()
        .filter(|signal| !ignores_signal(*signal))
    {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// Whether this process ignores a signal, as its parent has decided.
fn ignores_signal(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
