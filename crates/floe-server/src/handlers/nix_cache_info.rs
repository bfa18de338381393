//! `/nix-cache-info`, and `/` for people.

use floe_format::{CacheInfo, SecretKey, StoreDir};

use crate::context::Context;
use crate::http::response::Response;

/// The text of `nix-cache-info`.
pub(crate) fn cache_info_text(store_dir: &StoreDir, priority: i32) -> String {
    CacheInfo {
        store_dir: store_dir.clone(),
        want_mass_query: true,
        priority: Some(priority),
    }
    .to_text()
}

/// What a person who opens the address in a browser needs.
pub(crate) fn root_text(store_dir: &StoreDir, keys: &[SecretKey]) -> String {
    let mut text = format!("This is a binary cache for Nix, of the store directory {store_dir}.\n");
    text.push_str("To use it, add its address to `substituters` in nix.conf");
    if keys.is_empty() {
        text.push_str(".\n");
    } else {
        text.push_str(", and to\n`trusted-public-keys`, if you trust who runs it:\n\n");
        for key in keys {
            text.push_str(&format!("  {}\n", key.public()));
        }
    }
    text
}

pub(crate) fn cache_info(context: &Context) -> Response {
    Response::text(200, CACHE_INFO_FIELDS, context.cache_info.clone())
}

pub(crate) fn root(context: &Context) -> Response {
    Response::text(200, ROOT_FIELDS, context.root.clone())
}

const CACHE_INFO_FIELDS: &str =
    "Content-Type: text/x-nix-cache-info\r\nCache-Control: max-age=3600\r\n";
const ROOT_FIELDS: &str =
    "Content-Type: text/plain; charset=utf-8\r\nCache-Control: max-age=3600\r\n";
