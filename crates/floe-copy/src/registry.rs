//! The kinds of stores, by the scheme of their URI. Only this file maps schemes to them.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "s3")]
use floe_cache::S3CacheUri;
use floe_cache::{FileCacheUri, HttpCacheUri};
use floe_remote::{DaemonUri, SshUri};
use floe_store::StoreLayout;
use floe_transfer::url::redact_credentials;
use floe_transfer::{Error, StoreConfig, StoreUri, UriContext};
use rustix::fs::{Access, access};

use crate::local::config::parse_local;

/// Returns the store of a URI: `auto`, `local`, `local?root=…`, a root directory, `daemon`,
/// `unix://…`, `ssh-ng://…`, `ssh://…`, `file://…`, `http://…`, `https://…` or `s3://…`.
///
/// A directory begins with `/`, `./`, `../` or `~/`, or exists.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn resolve_store_uri(text: &str, context: &UriContext) -> Result<Arc<dyn StoreConfig>, Error> {
    let uri = StoreUri::parse(text)?;
    parse(&uri, context).map_err(|reason| uri.invalid(reason))
}

/// Returns the store that `auto` means for writing. As in Nix, that is the daemon if this user may
/// not write to the local store and the daemon's socket is there. `configured` is `daemon`, or the
/// `unix://` URI of a daemon; if it belongs to another store than the local one, it is that daemon.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn resolve_auto_target(
    configured: &str,
    context: &UriContext,
) -> Result<Arc<dyn StoreConfig>, Error> {
    let local = resolve_store_uri("auto", context)?;
    let uri = StoreUri::parse(configured)?;
    let daemon = DaemonUri::parse(&uri, context).map_err(|reason| uri.invalid(reason))?;
    let access_needed = Access::READ_OK | Access::WRITE_OK;
    let may_write = |layout: &StoreLayout| access(&layout.state_dir, access_needed).is_ok();
    let is_its_daemon = |layout: &StoreLayout| daemon.is_of(&layout.state_dir);
    let is_local = local
        .layout()
        .is_some_and(|layout| match uri.scheme.as_str() {
            "unix" => is_its_daemon(layout) && may_write(layout),
            _ => may_write(layout) || !daemon.exists(),
        });
    if is_local {
        Ok(local)
    } else {
        Ok(Arc::new(daemon))
    }
}

/// Reads the parts of a store URI. The error says which part is wrong.
fn parse(uri: &StoreUri, context: &UriContext) -> Result<Arc<dyn StoreConfig>, String> {
    Ok(match uri.scheme.as_str() {
        "auto" | "local" => parse_local(uri, context)?,
        "daemon" | "unix" => Arc::new(DaemonUri::parse(uri, context)?),
        "ssh-ng" | "ssh" => Arc::new(SshUri::parse(uri, context)?),
        "file" => Arc::new(FileCacheUri::parse(uri, context)?),
        "http" | "https" => Arc::new(HttpCacheUri::parse(uri, context)?),
        #[cfg(feature = "s3")]
        "s3" => Arc::new(S3CacheUri::parse(uri, context)?),
        "" if is_existing_directory(&uri.address) => parse_local(uri, context)?,
        // Only a text with a colon may have a password.
        "" if uri.address.contains(':') => {
            return Err(spelling::of_text(&redact_credentials(&uri.address)));
        }
        "" => return Err(spelling::of_text(&uri.address)),
        scheme => return Err(spelling::of_scheme(scheme)),
    })
}

/// Whether a relative path without `./` is meant as a directory. A text such as `s3:bucket` never
/// is, even if there is such a directory: floe would ignore the scheme.
fn is_existing_directory(text: &str) -> bool {
    !text.contains(':') && Path::new(text).is_dir()
}

mod spelling;
#[cfg(test)]
mod tests;
