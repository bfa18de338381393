//! From flags, files and environment to the options of the libraries.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, io};

use floe_cache::NetworkOptions;
use floe_config::{Config, Environment, ProcessUser, UnknownSetting};
use floe_format::{Compression, TrustedKeys};
use floe_store::{
    GcSettings, LockWait, LostRecord, StoreEvent, StoreEvents, Unreadable, WriteOptions,
};
use floe_transfer::{Cancel, ClosureLimit, Error, StoreConfig, UriContext, parse_public_keys};

use crate::args::{OptionArgs, TrustArgs};
use crate::display::{eprint_line, warn};
use crate::exit::UsageError;
use crate::links::{StoreNames, check_exists};
use crate::messages::{counted, waiting_for_resource};
use crate::open_files::{self, limit_connections};
use crate::root_links::warn_of_unreadable;

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
        let settings = Settings::load_quietly(options, store_dir)?;
        for setting in &settings.config.unknown_settings {
            warn(unknown_setting(setting));
        }
        Ok(settings)
    }

    /// As [`Settings::load`], without warnings.
    pub(crate) fn load_quietly(
        options: &OptionArgs,
        store_dir: Option<&str>,
    ) -> anyhow::Result<Settings> {
        let environment = environment();
        let mut context = environment.uri_context(store_dir)?;
        let config = Config::load(&environment, &options.pairs())?;
        if !config.connect_timeout.is_default() {
            // Otherwise that of the user's ssh counts.
            context.connect_timeout = config.network().connect_timeout;
        }
        Ok(Settings { config, context })
    }

    /// Replaces arguments that lead into one of the local stores among `stores`, else into the
    /// configured store directory.
    ///
    /// Errors: an argument names a file that does not exist.
    pub(crate) fn follow_links(
        &self,
        arguments: &[String],
        stores: &[&dyn StoreConfig],
    ) -> Result<Vec<String>, UsageError> {
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
            if let Some(found) = followed {
                return Ok(found);
            }
            for names in &names {
                check_exists(text, &names.store_dir)?;
            }
            Ok(text.clone())
        });
        followed.collect()
    }

    /// Sets the compression and the keys of a cache that gets paths and whose URI does not name
    /// them. `keys` are the files of further keys, instead of the configured ones.
    pub(crate) fn set_push_defaults(&mut self, keys: &[PathBuf], check: bool) -> io::Result<()> {
        let absolute = |files: &[PathBuf]| -> io::Result<Vec<PathBuf>> {
            files.iter().map(std::path::absolute).collect()
        };
        let context = &mut self.context;
        context.compression = Some(Compression::Zstd);
        context.check_present = check;
        match keys {
            [] => context.secret_keys = absolute(&self.config.secret_key_files.get().0)?,
            keys => context.further_secret_keys = absolute(keys)?,
        }
        Ok(())
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

    /// Returns the largest closure that floe accepts from a source.
    pub(crate) fn closure_limit(&self) -> ClosureLimit {
        let setting = &self.config.max_closure_paths;
        if setting.is_default() {
            return ClosureLimit::default();
        }
        ClosureLimit::of_paths(usize::try_from(*setting.get()).unwrap_or(usize::MAX))
    }

    /// Returns the settings of a collection in a store.
    pub(crate) fn gc_settings(&self, store: &dyn StoreConfig) -> GcSettings {
        GcSettings {
            keep_outputs: *self.config.keep_outputs.get(),
            keep_derivations: *self.config.keep_derivations.get(),
            runtime_roots: store.facts().runtime_roots,
            ignore_unregistered_roots: false,
            ..GcSettings::default()
        }
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

fn unknown_setting(setting: &UnknownSetting) -> String {
    let UnknownSetting { name, origin, .. } = setting;
    let fix = nearest_setting(setting);
    format!("ignoring {name} ({origin}): neither floe nor Nix has such a setting; {fix}")
}

/// Returns a lock wait that prints a line, and ends if the flag is raised.
pub(crate) fn lock_wait(cancelled: Arc<AtomicBool>) -> LockWait {
    LockWait::new(cancelled, |what| {
        eprint_line(waiting_for_resource(what));
    })
}

/// Returns what to do about a name that is no setting.
pub(crate) fn nearest_setting(setting: &UnknownSetting) -> String {
    match setting.nearest {
        Some(nearest) => format!("use {nearest}"),
        None => "floe config lists the settings of floe".into(),
    }
}

fn report_store_event(event: StoreEvent) {
    match event {
        StoreEvent::CheckingPaths { paths } => eprint_line(format_args!(
            "checking {} whose files may not have reached the disk",
            counted(paths, "path")
        )),
        StoreEvent::LostRows { trees } => warn(format_args!(
            "the database had no tables, and floe has made them: {} of the store {} not \
             registered any more; floe install registers a path again, and a backup of db.sqlite \
             restores all",
            counted(trees, "path"),
            if trees == 1 { "is" } else { "are" }
        )),
        StoreEvent::LostSyncRecord { reason } => {
            let defect = match reason {
                LostRecord::Deleted => "it was deleted",
                LostRecord::BeyondDatabase => "it belongs to another database",
            };
            warn(format_args!(
                "replacing the record of paths that may not have reached the disk: {defect}; if \
                 the system lost its power, floe verify finds damaged paths"
            ));
        }
        StoreEvent::RootNotRecorded { error } => {
            warn_of_unreadable(&[Unreadable::NotRecorded(error)]);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &Expect) {
        let text = format!("{name} = 1");
        let variables = [
            ("NIX_CONF_DIR", "/nonexistent"),
            ("NIX_USER_CONF_FILES", ""),
            ("NIX_CONFIG", &*text),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let environment = Environment::new(variables, ProcessUser::current());
        let config = Config::load(&environment, &[]).unwrap();
        expected.assert_eq(&unknown_setting(&config.unknown_settings[0]));
    }

    #[test]
    fn unknown_setting_is_warned_of_with_the_nearest_one() {
        check(
            "subsituters",
            &expect![
                "ignoring subsituters (NIX_CONFIG:1): neither floe nor Nix has such a setting; use substituters"
            ],
        );
        check(
            "frobnicate",
            &expect![
                "ignoring frobnicate (NIX_CONFIG:1): neither floe nor Nix has such a setting; floe config lists the settings of floe"
            ],
        );
    }
}
