//! From flags, files and environment to the options of the libraries.

use std::env;

use floe_config::{Config, Environment, ProcessUser, parse_store_uri};
use std::sync::Arc;

use floe_copy::{StoreConfig, UriContext, reuse_directory};
use floe_format::{StoreDir, TrustedKeys};
use floe_store::{LockWait, WriteOptions};
use floe_transfer::{Cancel, CopyOptions, Error, Reuse, parse_public_keys};

use crate::args::{OptionArgs, StoreFileArgs, TransferArgs, TrustArgs};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::messages::{self, arguments, copy};

/// Returns the environment of this process. No other code reads variables for the configuration.
pub(crate) fn environment() -> Environment {
    Environment::new(env::vars_os(), ProcessUser::current())
}

/// Loads the settings of files, environment and `--option`, and warns of unknown names.
pub(crate) fn load_config(
    options: &OptionArgs,
    environment: &Environment,
) -> anyhow::Result<Config> {
    let config = Config::load(environment, &options.pairs())?;
    for name in &config.unknown_options {
        warn(messages::unknown_option(name));
    }
    Ok(config)
}

/// Returns the options of a copy.
pub(crate) fn copy_options(
    (config, environment): (&Config, &Environment),
    (target, store_dir): (&dyn StoreConfig, Option<&StoreDir>),
    (trust, files, transfer): (&TrustArgs, &StoreFileArgs, &TransferArgs),
) -> anyhow::Result<CopyOptions> {
    // The setting does not concern a binary cache, but the flag is an error there.
    let optimise_by_config = *config.auto_optimise_store.get() && target.layout().is_some();
    Ok(CopyOptions {
        trusted_keys: trusted_keys(config, trust)?,
        check_signatures: *config.require_sigs.get() && !trust.no_check_sigs,
        jobs: transfer.jobs,
        reuse: reuse(files, store_dir, environment)?,
        optimise: files.optimise || optimise_by_config,
        dry_run: transfer.dry_run,
        check_space: !transfer.no_check_space,
        cancel: Cancel::default(),
    })
}

/// Returns the stores of `--reuse`. A directory of store paths without a database counts as one.
fn reuse(
    files: &StoreFileArgs,
    store_dir: Option<&StoreDir>,
    environment: &Environment,
) -> anyhow::Result<Reuse> {
    let data_home = environment.data_home();
    let data_home = data_home.as_deref();
    let context = UriContext {
        store_dir,
        data_home,
    };
    let directory = |text: &String| reuse_directory(text, &context);
    let directories = files.reuse.iter().map(directory);
    Ok(Reuse {
        directories: directories.collect::<Result<_, _>>()?,
        by: files.reuse_by.unwrap_or_default(),
    })
}

/// Returns the options for writing to a local store, and warns where the settings do not fit.
pub(crate) fn write_options(config: &Config, cancel: &Cancel) -> anyhow::Result<WriteOptions> {
    let (options, warning) = config.write_options()?;
    warning.into_iter().for_each(warn);
    Ok(WriteOptions {
        lock_wait: LockWait::new(cancel.flag(), |what| {
            eprint_line(messages::waiting_for_resource(what));
        }),
        ..options
    })
}

/// Returns the keys of the flags, else the configured ones, and in both cases the extra keys.
fn trusted_keys(config: &Config, trust: &TrustArgs) -> Result<TrustedKeys, Error> {
    let several = trust.trusted_public_keys.as_deref();
    let single = trust.trusted_public_key.iter().map(String::as_str);
    let own: Vec<&str> = several.into_iter().chain(single).collect();
    let extra = trust.extra_trusted_public_keys.iter().map(String::as_str);
    let extra = parse_public_keys(extra)?;
    if own.is_empty() {
        return Ok(config.trusted_keys(extra));
    }
    let mut keys = parse_public_keys(own)?;
    keys.extend(extra);
    Ok(keys)
}

/// Parses `--store-dir`.
pub(crate) fn store_dir(text: Option<&str>) -> anyhow::Result<Option<StoreDir>> {
    let store_dir = text.map(StoreDir::new).transpose();
    store_dir.map_err(|error| UsageError(arguments::not_a_store_dir(error)).into())
}

/// Returns the sources of `--from`, else the configured substituters.
///
/// A substituter that floe cannot use is ignored with a warning: Nix, which shares the
/// configuration, may be able to use it.
pub(crate) fn sources(
    named: &[String],
    (config, environment): (&Config, &Environment),
    store_dir: Option<&StoreDir>,
) -> anyhow::Result<Vec<Arc<dyn StoreConfig>>> {
    if !named.is_empty() {
        let parse = |text: &String| Ok(parse_store_uri(text, store_dir, environment)?);
        return named.iter().map(parse).collect();
    }
    let (sources, errors) = config.substituters(store_dir, environment);
    for error in errors {
        warn(copy::ignored_substituter(&error));
    }
    match sources.is_empty() {
        true => Err(UsageError(copy::NO_SUBSTITUTER.into()).into()),
        false => Ok(sources),
    }
}

/// Makes the first SIGINT or SIGTERM cancel the work, and the second one end the process.
pub(crate) fn cancel_on_signals(cancel: &Cancel) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, cancel.flag())?;
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(())
}
