//! `/HASH.ls`: the files of a path, and their offsets in its NAR.

use floe_format::nar::listing;
use floe_store::StoreError;
use floe_store::tree::list_tree;

use crate::caches::narinfo_cache::CachedNarInfo;
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::http::response::{Response, etag_matches};

/// Responds with the listing as Nix writes it beside narinfos.
pub(crate) fn respond(
    context: &Context,
    narinfo: &CachedNarInfo,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    let etag = format!("\"{}-ls\"", narinfo.nar_hash());
    let fields = format!(
        "Content-Type: application/json\r\nCache-Control: max-age=3600\r\nETag: {etag}\r\n"
    );
    if etag_matches(request.if_none_match.as_deref(), &etag) {
        return Ok(Response::not_modified(fields));
    }
    if request.mode.head_only {
        // Only a walk through the tree would give the length.
        return Ok(Response::head(fields, None));
    }
    let path = context.layout.real_path(&narinfo.info.path);
    // As in Nix, a path with a file name that is not UTF-8 has no listing.
    let make = || Ok(listing::to_text(&list_tree(&path)?).ok());
    Ok(
        match context.nars.text((narinfo.hash, None), &path, make)? {
            Some(text) => Response::text(200, fields, text),
            None => Response::not_found("this path cannot be listed\n"),
        },
    )
}
