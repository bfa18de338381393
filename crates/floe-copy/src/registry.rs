//! The kinds of stores, by the scheme of their URI. Only this file names them.

use std::sync::Arc;

use floe_transfer::{Error, StoreUri};

use crate::caches;
use crate::local;
use crate::store_config::{StoreConfig, UriContext};

/// Reads the parts of a store URI. The error says which part is wrong.
pub(crate) type Parse = fn(&StoreUri, &UriContext<'_>) -> Result<Arc<dyn StoreConfig>, String>;

/// Each scheme with its kind of store.
const SCHEMES: [(&str, Parse); 6] = [
    ("auto", local::config::parse),
    ("local", local::config::parse),
    ("daemon", local::config::refuse_daemon),
    ("file", caches::parse_file),
    ("http", caches::parse_http),
    ("https", caches::parse_http),
];

/// Returns the store that a URI names: `auto`, `local`, `local?root=…`, a directory (a store under
/// that root), `file://…`, `http://…` or `https://…`.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn resolve_store_uri(
    text: &str,
    context: &UriContext<'_>,
) -> Result<Arc<dyn StoreConfig>, Error> {
    let uri = StoreUri::parse(text)?;
    let known = SCHEMES.iter().find(|(scheme, _)| *scheme == uri.scheme);
    let Some((_, parse)) = known else {
        return Err(uri.invalid("unknown scheme; use http://, https://, file:// or a directory"));
    };
    parse(&uri, context).map_err(|reason| uri.invalid(reason))
}

#[cfg(test)]
mod tests;
