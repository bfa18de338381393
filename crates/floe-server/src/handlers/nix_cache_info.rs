//! `/nix-cache-info`, and the page at `/` for people.

use floe_format::{CacheInfo, SecretKey, StoreDir};

use crate::context::Context;
use crate::http::response::Response;

/// Returns the text of `/nix-cache-info`.
pub(crate) fn cache_info_text(store_dir: &StoreDir, priority: i32) -> String {
    CacheInfo {
        store_dir: store_dir.clone(),
        want_mass_query: true,
        priority: Some(priority),
    }
    .to_text()
}

/// Returns the text of `/`: how to use this cache.
pub(crate) fn landing_page_text(store_dir: &StoreDir, keys: &[SecretKey]) -> String {
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

pub(crate) fn respond(context: &Context) -> Response {
    Response::text(200, CACHE_INFO_FIELDS, context.cache_info.read().clone())
}

pub(crate) fn landing_page(context: &Context) -> Response {
    Response::text(
        200,
        LANDING_PAGE_FIELDS,
        context.landing_page.read().clone(),
    )
}

const CACHE_INFO_FIELDS: &str =
    "Content-Type: text/x-nix-cache-info\r\nCache-Control: max-age=3600\r\n";
const LANDING_PAGE_FIELDS: &str =
    "Content-Type: text/plain; charset=utf-8\r\nCache-Control: max-age=3600\r\n";
