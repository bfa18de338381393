//! From flags and the environment to the engine's plain options.

use std::env;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use floe_engine::{
    Cancel, CopyOptions, Error, NetworkOptions, Reuse, StoreUri, parse_public_keys,
    reuse_directory, unusable_netrc_files,
};
use floe_format::{StoreDir, TrustedKeys};
use floe_store::{LockWait, WriteOptions};
use nix::unistd::Gid;

use crate::accounts;
use crate::args::{OptionArgs, StoreFileArgs, TransferArgs, TrustArgs};
use crate::config::{Config, Environment};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::messages::waiting_for_resource;

/// What files, the environment and `--option` say.
pub(crate) fn load_config(options: &OptionArgs) -> anyhow::Result<Config> {
    let config = load_config_with(&options.pairs())?;
    for name in &config.unknown_options {
        warn(format_args!(
            "--option {name}: floe has no such setting, and passes over it"
        ));
    }
    Ok(config)
}

/// The same for a command that takes no `--option`.
pub(crate) fn load_config_without_options() -> anyhow::Result<Config> {
    load_config_with(&[])
}

fn load_config_with(options: &[(&str, &str)]) -> anyhow::Result<Config> {
    let loaded = Config::load(&Environment::from_process(), options);
    Ok(loaded.map_err(UsageError::from)?)
}

/// The options of a move.
pub(crate) fn copy_options(
    config: &Config,
    store_dir: Option<&StoreDir>,
    (trust, files, work): (&TrustArgs, &StoreFileArgs, &TransferArgs),
) -> anyhow::Result<CopyOptions> {
    Ok(CopyOptions {
        trusted_keys: trusted_keys(config, trust)?,
        check_signatures: *config.require_sigs.get() && !trust.no_check_sigs,
        jobs: work.jobs,
        reuse: reuse(files, store_dir)?,
        optimise: files.optimise || *config.auto_optimise_store.get(),
        dry_run: work.dry_run,
        check_space: !work.no_check_space,
        cancel: Cancel::default(),
    })
}

/// The stores of `--reuse`, which need not be those of a Nix that lives.
fn reuse(files: &StoreFileArgs, store_dir: Option<&StoreDir>) -> anyhow::Result<Reuse> {
    let home = data_home();
    let directory = |text: &String| reuse_directory(text, store_dir, home.as_deref());
    let directories = files.reuse.iter().map(directory);
    Ok(Reuse {
        directories: directories.collect::<Result<_, _>>()?,
        by: files.reuse_by.unwrap_or_default().into(),
    })
}

/// How a store is written, by what is configured. Nobody is warned of a group that only Nix's
/// default names: a machine without Nix has none.
pub(crate) fn write_options(config: &Config, cancel: &Cancel) -> anyhow::Result<WriteOptions> {
    let setting = &config.build_users_group;
    let name = &*setting.get().0;
    let group = match name.is_empty() {
        true => None,
        false => {
            accounts::group_by_name(name).with_context(|| format!("looking up the group {name}"))?
        }
    };
    if group.is_none() && !name.is_empty() && !setting.is_default() {
        warn(format_args!(
            "there is no group {name}, which build-users-group names"
        ));
    }
    Ok(WriteOptions {
        build_users_group: group.map(Gid::as_raw),
        allow_symlinked_store: *config.allow_symlinked_store.get(),
        use_sqlite_wal: *config.use_sqlite_wal.get(),
        fsync_metadata: *config.fsync_metadata.get(),
        lock_wait: LockWait::new(cancel.flag(), |what| {
            eprint_line(waiting_for_resource(what));
        }),
        ..WriteOptions::default()
    })
}

/// As many threads as asked for, else as there are cores.
pub(crate) fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked
        .or_else(|| thread::available_parallelism().ok())
        .unwrap_or(NonZeroUsize::MIN)
}

/// What the flags say, one of which holds several keys; without one, what is configured.
fn trusted_keys(config: &Config, trust: &TrustArgs) -> Result<TrustedKeys, Error> {
    let several = trust.trusted_public_keys.as_deref();
    let single = trust.trusted_public_key.iter().map(String::as_str);
    let own: Vec<&str> = several.into_iter().chain(single).collect();
    let mut keys = match own.is_empty() {
        true => config.trusted_public_keys.get().parsed.clone(),
        false => parse_public_keys(own)?,
    };
    let extra = trust.extra_trusted_public_keys.iter().map(String::as_str);
    keys.extend(parse_public_keys(extra)?);
    Ok(keys)
}

/// How caches are asked by commands that read no configuration.
pub(crate) fn network() -> NetworkOptions {
    NetworkOptions {
        certificates: certificates(),
        ..NetworkOptions::default()
    }
}

/// The certificates that the environment names.
fn certificates() -> Option<PathBuf> {
    let named = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    named("NIX_SSL_CERT_FILE").or_else(|| named("SSL_CERT_FILE"))
}

/// Where the user keeps data: `$XDG_DATA_HOME`, else `~/.local/share`.
fn data_home() -> Option<PathBuf> {
    let xdg = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    xdg.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".local/share")))
}

/// The store directory that was asked for, if any.
pub(crate) fn store_dir(text: Option<&str>) -> anyhow::Result<Option<StoreDir>> {
    text.map(StoreDir::new).transpose().map_err(|error| {
        UsageError(format!("--store-dir {}: {error}", text.unwrap_or_default())).into()
    })
}

/// A store or cache by its address.
pub(crate) fn parse_store_uri(
    text: &str,
    store_dir: Option<&StoreDir>,
) -> anyhow::Result<StoreUri> {
    Ok(StoreUri::parse(text, store_dir, data_home().as_deref())?)
}

/// The sources that were named, else the substituters that are configured. One of those that floe
/// cannot use is passed over with a warning, as by Nix, with which floe shares its configuration.
pub(crate) fn sources(
    named: &[String],
    config: &Config,
    store_dir: Option<&StoreDir>,
) -> anyhow::Result<Vec<StoreUri>> {
    if !named.is_empty() {
        return named
            .iter()
            .map(|text| parse_store_uri(text, store_dir))
            .collect();
    }
    let mut sources: Vec<StoreUri> = Vec::new();
    for text in &config.substituters.get().0 {
        match parse_store_uri(text, store_dir) {
            Ok(source) if sources.contains(&source) => {}
            Ok(source) => sources.push(source),
            Err(error) => warn(format_args!("substituter passed over: {error}")),
        }
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

/// A store or cache by its address, where `auto` is the store that is configured, as for Nix.
///
/// What is behind a daemon floe writes itself, if it may.
pub(crate) fn resolve_store_uri(
    text: &str,
    config: &Config,
    store_dir: Option<&StoreDir>,
) -> anyhow::Result<StoreUri> {
    let setting = &config.store;
    let configured = &*setting.get().0;
    let is_usual =
        matches!(configured, "" | "auto" | "daemon") || configured.starts_with("unix://");
    if text != "auto" || is_usual {
        return parse_store_uri(text, store_dir);
    }
    parse_store_uri(configured, store_dir).map_err(|error| {
        let origin = setting.source();
        UsageError(format!("{error} ({origin} says so; name another store)")).into()
    })
}

/// The store below `--root`.
pub(crate) fn store_in_root(root: &Path, store_dir: Option<&StoreDir>) -> anyhow::Result<StoreUri> {
    let root = std::path::absolute(root)?;
    let dir = store_dir.cloned().unwrap_or_default();
    Ok(floe_store::StoreLayout::in_root(&root, dir).into())
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
