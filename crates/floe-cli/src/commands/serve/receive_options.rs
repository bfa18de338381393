//! Opens the place that receives uploads, as the settings say.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;

use floe_config::ServeSettings;
use floe_daemon::Access;
use floe_format::{SecretKey, TrustedKeys};
use floe_server::Config;
use floe_server::receive::Receiver;
use floe_transfer::Cancel;

use super::messages;
use super::receive::{ReceiveLimits, StoreOptions, UploadReceiver};
use crate::args::OptionArgs;
use crate::exit::UsageError;
use crate::options::Settings;
use crate::writable_mount::make_writable;

/// Opens the place that receives uploads, if there is one. `requires_signatures` is what the store
/// itself says. A check opens none.
pub(super) fn open(
    (settings, config): (&ServeSettings, &Config),
    requires_signatures: Option<bool>,
    is_check: bool,
) -> anyhow::Result<Option<Arc<dyn Receiver>>> {
    let Some(place) = ReceivePlace::of(settings) else {
        return Ok(None);
    };
    if config.auth_file.is_none() {
        bail!(UsageError(messages::RECEIVE_WITHOUT_LOGINS.into()));
    }
    if is_check {
        return Ok(None);
    }
    let limits = (limits(settings, place), config.warn.clone());
    Ok(Some(Arc::new(match place {
        ReceivePlace::Cache(directory) => {
            let store = (config.store.clone(), config.secret_keys.clone());
            UploadReceiver::of_cache(directory, store, limits)?
        }
        ReceivePlace::Store(directory) => {
            let store = store_options((settings, config), requires_signatures)?;
            UploadReceiver::of_store(directory, store, limits)?
        }
    })))
}

/// The place that receives uploads, with its directory.
#[derive(Clone, Copy)]
pub(super) enum ReceivePlace<'a> {
    /// The cache in the directory.
    Cache(&'a Path),
    /// The store. The directory has what is not registered yet.
    Store(&'a Path),
}

impl<'a> ReceivePlace<'a> {
    /// Returns the place in the settings, of which at most one is set.
    pub(super) fn of(settings: &'a ServeSettings) -> Option<ReceivePlace<'a>> {
        let cache = settings.receive.value().map(PathBuf::as_path);
        let uploads = settings.receive_into_store.value().map(PathBuf::as_path);
        let cache = cache.map(ReceivePlace::Cache);
        cache.or(uploads.map(ReceivePlace::Store))
    }

    pub(super) fn directory(self) -> &'a Path {
        match self {
            ReceivePlace::Cache(directory) | ReceivePlace::Store(directory) => directory,
        }
    }

    /// Returns the name of its setting.
    pub(super) fn setting(self) -> &'static str {
        match self {
            ReceivePlace::Cache(_) => "receive",
            ReceivePlace::Store(_) => "receive-into-store",
        }
    }
}

fn limits(settings: &ServeSettings, place: ReceivePlace<'_>) -> ReceiveLimits {
    ReceiveLimits {
        nar_len_max: settings
            .receive_max_size
            .value()
            .map_or(u64::MAX, |size| size.0),
        total_max: settings.receive_max_total.value().map(|size| size.0),
        per_minute: settings.receive_rate.value().copied(),
        may_pin: settings
            .pins
            .value()
            .is_none_or(|pins| pins == place.directory()),
    }
}

/// Returns how the store receives paths. The keys of nix.conf and those of the server are trusted.
fn store_options(
    (settings, config): (&ServeSettings, &Config),
    requires_signatures: Option<bool>,
) -> anyhow::Result<StoreOptions> {
    // No other thread runs yet that uses the store: it would keep a read-only mount.
    make_writable(&config.store.real_store_dir)?;
    let nix = Settings::load_quietly(&OptionArgs::default(), None)?;
    let by_config = requires_signatures.unwrap_or(*nix.config.require_sigs.get());
    let checks_no_signatures = settings.receive_no_check_sigs.value().copied();
    let access = Access {
        may_write: true,
        is_trusted: false,
        requires_signatures: by_config && !checks_no_signatures.unwrap_or(false),
        trusted_keys: nix.config.trusted_keys(TrustedKeys::default()),
    };
    let keep = settings.receive_keep.value().copied();
    Ok(StoreOptions {
        layout: config.store.clone(),
        access,
        own_keys: config.secret_keys.iter().map(SecretKey::public).collect(),
        write: nix.write_options(&Cancel::default())?,
        keep: keep.unwrap_or(Duration::MAX),
    })
}
