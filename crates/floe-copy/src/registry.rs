//! The kinds of stores, by the scheme of their URI. Only this file maps schemes to them.

use std::sync::Arc;

use floe_cache::{FileCacheUri, HttpCacheUri};
use floe_transfer::{Error, StoreUri};

use crate::local::config::parse_local;
use crate::store_config::{StoreConfig, UriContext};

/// Returns the store that a URI names: `auto`, `local`, `local?root=…`, a directory (a store under
/// that root), `file://…`, `http://…` or `https://…`.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn resolve_store_uri(
    text: &str,
    context: &UriContext<'_>,
) -> Result<Arc<dyn StoreConfig>, Error> {
    let uri = StoreUri::parse(text)?;
    parse(&uri, context).map_err(|reason| uri.invalid(reason))
}

/// Reads the parts of a store URI. The error says which part is wrong.
fn parse(uri: &StoreUri, context: &UriContext<'_>) -> Result<Arc<dyn StoreConfig>, String> {
    Ok(match uri.scheme.as_str() {
        "auto" | "local" => parse_local(uri, context)?,
        "file" => Arc::new(FileCacheUri::parse(uri)?),
        "http" | "https" => Arc::new(HttpCacheUri::parse(uri)?),
        "daemon" => return Err(NO_DAEMON.into()),
        _ => return Err("unknown scheme; use http://, https://, file:// or a directory".into()),
    })
}

const NO_DAEMON: &str = "floe cannot use the Nix daemon yet; run floe as root on the store itself, \
                         or use another store with --root DIR";

#[cfg(test)]
mod tests;
