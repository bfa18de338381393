//! From flags and the environment to the engine's plain options.

use std::env;

use floe_config::{Config, Environment, ProcessUser, parse_store_uri};
use floe_engine::{
    Cancel, CopyOptions, Error, NetworkOptions, Reuse, StoreUri, parse_public_keys,
    reuse_directory, unusable_netrc_files,
};
use floe_format::{StoreDir, TrustedKeys};
use floe_store::{LockWait, WriteOptions};

use crate::args::{OptionArgs, StoreFileArgs, TransferArgs, TrustArgs};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::messages::waiting_for_resource;

/// The environment of this process. Nothing else in floe reads variables for its configuration.
pub(crate) fn environment() -> Environment {
    Environment::new(env::vars_os(), ProcessUser::current())
}

/// What files, the environment and `--option` say.
pub(crate) fn load_config(
    options: &OptionArgs,
    environment: &Environment,
) -> anyhow::Result<Config> {
    let config = Config::load(environment, &options.pairs())?;
    for name in &config.unknown_options {
        warn(format_args!(
            "--option {name}: floe has no such setting, and passes over it"
        ));
    }
    Ok(config)
}

/// The options of a move.
pub(crate) fn copy_options(
    (config, environment): (&Config, &Environment),
    store_dir: Option<&StoreDir>,
    (trust, files, work): (&TrustArgs, &StoreFileArgs, &TransferArgs),
) -> anyhow::Result<CopyOptions> {
    Ok(CopyOptions {
        trusted_keys: trusted_keys(config, trust)?,
        check_signatures: *config.require_sigs.get() && !trust.no_check_sigs,
        jobs: work.jobs,
        reuse: reuse(files, store_dir, environment)?,
        optimise: files.optimise || *config.auto_optimise_store.get(),
        dry_run: work.dry_run,
        check_space: !work.no_check_space,
        cancel: Cancel::default(),
    })
}

/// The stores of `--reuse`, which need not be those of a Nix that lives.
fn reuse(
    files: &StoreFileArgs,
    store_dir: Option<&StoreDir>,
    environment: &Environment,
) -> anyhow::Result<Reuse> {
    let home = environment.data_home();
    let directory = |text: &String| reuse_directory(text, store_dir, home.as_deref());
    let directories = files.reuse.iter().map(directory);
    Ok(Reuse {
        directories: directories.collect::<Result<_, _>>()?,
        by: files.reuse_by.unwrap_or_default().into(),
    })
}

/// How a store is written, by what is configured.
pub(crate) fn write_options(config: &Config, cancel: &Cancel) -> anyhow::Result<WriteOptions> {
    let (options, warning) = config.write_options()?;
    warning.into_iter().for_each(warn);
    Ok(WriteOptions {
        lock_wait: LockWait::new(cancel.flag(), |what| {
            eprint_line(waiting_for_resource(what));
        }),
        ..options
    })
}

/// What the flags say, one of which holds several keys; without one, what is configured.
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

/// The store directory that was asked for, if any.
pub(crate) fn store_dir(text: Option<&str>) -> anyhow::Result<Option<StoreDir>> {
    text.map(StoreDir::new).transpose().map_err(|error| {
        UsageError(format!("--store-dir {}: {error}", text.unwrap_or_default())).into()
    })
}

/// The sources that were named, else the substituters that are configured. One of those that floe
/// cannot use is passed over with a warning, as by Nix, with which floe shares its configuration.
pub(crate) fn sources(
    named: &[String],
    (config, environment): (&Config, &Environment),
    store_dir: Option<&StoreDir>,
) -> anyhow::Result<Vec<StoreUri>> {
    if !named.is_empty() {
        let parse = |text: &String| Ok(parse_store_uri(text, store_dir, environment)?);
        return named.iter().map(parse).collect();
    }
    let (sources, errors) = config.substituters(store_dir, environment);
    for error in errors {
        warn(format_args!("substituter passed over: {error}"));
    }
    match sources.is_empty() {
        true => Err(UsageError(
            "no substituter is configured that floe can use; name one with --from".into(),
        )
        .into()),
        false => Ok(sources),
    }
}

/// Says which files of logins are gone without, where a cache may ask for a login.
pub(crate) fn warn_unusable_credentials(sources: &[StoreUri], network: &NetworkOptions) {
    if sources
        .iter()
        .any(|source| matches!(source, StoreUri::Http(_)))
    {
        for error in unusable_netrc_files(network) {
            warn(format_args!("going on without logins: {error}"));
        }
    }
}

/// Ends the move soon on the first SIGINT or SIGTERM, and the process on the second.
pub(crate) fn cancel_on_signals(cancel: &Cancel) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, cancel.flag())?;
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(())
}
