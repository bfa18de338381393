//! `/HASH.ls`: what is in a path, and where in its NAR.

use floe_format::nar::listing;
use floe_store::StoreError;
use floe_store::tree::list_tree;

use crate::body::text::Text;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::context::{Context, DeferredRequest};
use crate::http::response::{Content, Response, etag_matches};
use crate::http::route::HashPart;

/// The listing as Nix writes it beside narinfos.
pub(crate) fn listing(
    context: &Context,
    hash: HashPart,
    entry: &CachedNarInfo,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    let etag = format!("\"{}-ls\"", entry.nar_hash);
    let fields = format!(
        "Content-Type: application/json\r\nCache-Control: max-age=3600\r\nETag: {etag}\r\n"
    );
    if etag_matches(request.if_none_match.as_deref(), &etag) {
        return Ok(Response::not_modified(fields));
    }
    if request.head_only {
        // How long it is would only be known after a walk.
        return Ok(Response {
            status: 200,
            fields: fields.into(),
            length: None,
            content: Content::Text(Text::Static("")),
        });
    }
    let path = context.layout.real_path(&entry.info.path);
    // As in Nix, a name that is not UTF-8 stands in no listing.
    let make = || Ok(listing::to_text(&list_tree(&path)?).ok());
    match context.nars.text((hash, None), &path, make)? {
        Some(text) => Ok(Response::text(200, fields, text)),
        None => Ok(Response::not_found("this path cannot be listed\n")),
    }
}
