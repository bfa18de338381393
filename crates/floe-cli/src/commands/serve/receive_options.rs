//! Opens the place that receives uploads, as the settings say.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;

use floe_config::ServeSettings;
use floe_daemon::Access;
use floe_format::{PublicKey, SecretKey, TrustedKeys};
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
    let (cache, uploads) = (
        settings.receive.value(),
        settings.receive_into_store.value(),
    );
    if cache.is_none() && uploads.is_none() {
        return Ok(None);
    }
    if config.auth_file.is_none() {
        bail!(UsageError(messages::RECEIVE_WITHOUT_LOGINS.into()));
    }
    if is_check {
        return Ok(None);
    }
    let limits = limits(settings);
    Ok(Some(Arc::new(match (cache, uploads) {
        (Some(directory), _) => {
            let store = (config.store.clone(), config.secret_keys.clone());
            UploadReceiver::of_cache(directory, store, limits)?
        }
        (None, uploads) => {
            let store = store_options((settings, config), requires_signatures)?;
            let directory = uploads.map_or(Path::new(""), |directory| directory);
            UploadReceiver::of_store(directory, store, limits)?
        }
    })))
}

/// Returns the directory that receives uploads.
pub(super) fn directory(settings: &ServeSettings) -> Option<&PathBuf> {
    let cache = settings.receive.value();
    cache.or(settings.receive_into_store.value())
}

fn limits(settings: &ServeSettings) -> ReceiveLimits {
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
            .is_none_or(|pins| Some(pins) == directory(settings)),
    }
}

/// Returns how the store receives paths. The keys of nix.conf and those of the server are trusted.
fn store_options(
    (settings, config): (&ServeSettings, &Config),
    requires_signatures: Option<bool>,
) -> anyhow::Result<StoreOptions> {
    // No other thread runs yet: it would keep a read-only mount.
    make_writable(&config.store.real_store_dir)?;
    let nix = Settings::load_quietly(&OptionArgs::default(), None)?;
    let own = config.secret_keys.iter().map(SecretKey::public);
    let own: TrustedKeys = own.collect::<Vec<PublicKey>>().into_iter().collect();
    let by_config = requires_signatures.unwrap_or(*nix.config.require_sigs.get());
    let checks_no_signatures = settings.receive_no_check_sigs.value().copied();
    let access = Access {
        may_write: true,
        is_trusted: false,
        requires_signatures: by_config && !checks_no_signatures.unwrap_or(false),
        trusted_keys: nix.config.trusted_keys(own),
    };
    let keep = settings.receive_keep.value().copied();
    Ok(StoreOptions {
        layout: config.store.clone(),
        access,
        write: nix.write_options(&Cancel::default())?,
        keep: keep.unwrap_or(Duration::MAX),
    })
}
