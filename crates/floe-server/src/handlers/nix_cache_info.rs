//! `/nix-cache-info`.

use floe_format::{CacheInfo, StoreDir};

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

pub(crate) fn respond(context: &Context) -> Response {
    Response::text(200, CACHE_INFO_FIELDS, context.cache_info.read().clone())
}

const CACHE_INFO_FIELDS: &str =
    "Content-Type: text/x-nix-cache-info\r\nCache-Control: max-age=3600\r\n";
