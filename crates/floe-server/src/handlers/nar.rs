//! `/nar/…`: the NAR of a path.
//!
//! 1. If the URL has a NAR hash other than the path's, the response is 404: the path was rebuilt.
//! 2. A client that accepts zstd gets a compressed copy, if compression is on and one is ready.
//! 3. A small NAR comes from memory. Its bytes were compared with the NAR hash.
//! 4. A large NAR is sent by its plan, whose size must be the one in the database.

use std::path::Path;
use std::sync::Arc;

use floe_store::StoreError;

use super::compressed_nar;
use super::nar_fields::{NAR_TYPE, fields};
use super::range_response::{Version, applicable_range, range_response};
use crate::body::Piece;
use crate::body::nar_range::NarRange;
use crate::caches::nar_cache::SMALL_NAR_MAX;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::caches::tree_identity::TreeIdentity;
use crate::config::Compress;
use crate::context::Context;
use crate::deferred::{DeferredRequest, NarTarget};
use crate::http::request::{Method, Request};
use crate::http::response::{CacheKind, CacheUse, Content, Response, etag_matches};

/// Compares the NAR hash in a URL with that of the path, and examines the root of its tree.
///
/// Errors: the response to send if the hashes differ, or if there is no tree.
pub(crate) fn target(
    context: &Context,
    narinfo: Arc<CachedNarInfo>,
    nar_hash: Option<&str>,
) -> Result<NarTarget, Response> {
    if nar_hash.is_some_and(|nar_hash| nar_hash != narinfo.nar_hash()) {
        return Err(Response::not_found(
            "the path has another NAR hash; it may have been rebuilt\n",
        ));
    }
    // If the files of the path are gone, its NAR is not served from memory either.
    let identity = TreeIdentity::read(&context.layout.real_path(&narinfo.info.path));
    let identity = identity.map_err(|error| {
        // From now on, clients learn that from the narinfo.
        context.narinfos.forget(narinfo.hash);
        context.error_response(&error)
    })?;
    Ok(NarTarget {
        narinfo,
        is_immutable: nar_hash.is_some(),
        identity,
    })
}

/// Responds if that takes no file.
pub(crate) fn try_respond(
    context: &Context,
    nar: &NarTarget,
    request: &Request<'_>,
) -> Option<Response> {
    let narinfo = &*nar.narinfo;
    if etag_matches(request.if_none_match, &narinfo.nar_etag) {
        return Some(Response::not_modified(fields(context, nar, NAR_TYPE)));
    }
    let may_encode = context.compress != Compress::Off && request.accepts_zstd;
    if request.range.is_some() || may_encode {
        return None;
    }
    let length = narinfo.info.nar_size;
    if request.method == Method::Head && length != 0 {
        return Some(Response::head(fields(context, nar, NAR_TYPE), Some(length)));
    }
    if length > SMALL_NAR_MAX {
        return None;
    }
    let bytes = context.nars.get_small(narinfo, nar.identity)?;
    let fields = fields(context, nar, NAR_TYPE);
    Some(whole(fields, bytes).noting(CacheKind::Nar, CacheUse::Hit))
}

/// Responds with whatever the store has.
pub(crate) fn respond_blocking(
    context: &Context,
    nar: &NarTarget,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    let may_encode = context.compress != Compress::Off && request.accepts_zstd;
    if !may_encode || request.range.is_some() {
        return respond_uncompressed(context, nar, request);
    }
    if let Some(response) = compressed_nar::respond(context, nar, request)? {
        return Ok(response);
    }
    let response = respond_uncompressed(context, nar, request)?;
    Ok(if compressed_nar::is_cacheable(context, nar) {
        response.noting(CacheKind::CompressedNar, CacheUse::Miss)
    } else {
        response
    })
}

/// Reads small NARs, plans large ones.
fn respond_uncompressed(
    context: &Context,
    nar: &NarTarget,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    let narinfo = &*nar.narinfo;
    let path = context.layout.real_path(&narinfo.info.path);
    let is_ranged = request.range.is_some();
    let size = narinfo.info.nar_size;
    if !is_ranged && (1..=SMALL_NAR_MAX).contains(&size) {
        return Ok(
            match context.nars.read_small(narinfo, nar.identity, &path)? {
                Some(bytes) => whole(fields(context, nar, NAR_TYPE), bytes)
                    .noting(CacheKind::Nar, CacheUse::Miss),
                None => mismatch(context, &path),
            },
        );
    }
    let plan = context.nars.plan(narinfo.hash, nar.identity, &path)?;
    let len = plan.nar_size();
    if size != 0 && len != size {
        return Ok(mismatch(context, &path));
    }
    if !is_ranged
        && !request.mode.head_only
        && let Some(halves) = context.readahead.split(&plan, &path)?
    {
        let fields = fields(context, nar, NAR_TYPE);
        return Ok(Response::streamed(fields, Some(len), halves));
    }
    let range = applicable_range(request, &narinfo.nar_etag);
    let version = Version {
        fields: fields(context, nar, ""),
        content_type: NAR_TYPE,
        len,
    };
    let mut is_first = true;
    range_response(version, range, |range| {
        let plan = plan.clone();
        if std::mem::replace(&mut is_first, false) {
            NarRange::open(plan, &path, range).map(Piece::Nar)
        } else {
            Ok(Piece::Nar(NarRange::lazy(plan, &path, range)))
        }
    })
}

/// Packs the small files of a NAR that was sent before. A worker does this after it has sent the
/// NAR, so that no client waits for it.
pub(crate) fn after_send(context: &Context, nar: &NarTarget) {
    let info = &nar.narinfo.info;
    if (1..=SMALL_NAR_MAX).contains(&info.nar_size) {
        return;
    }
    let path = context.layout.real_path(&info.path);
    if let Err(error) = context.nars.pack(nar.narinfo.hash, &path) {
        (context.warn)(&error.to_string());
    }
}

/// Responds that the files of a path are not what was registered, and warns the operator.
fn mismatch(context: &Context, path: &Path) -> Response {
    (context.warn)(&format!(
        "refusing to serve {}: its contents differ from the registered NAR; \
         check it with `floe verify`, and repair it with `nix-store --repair-path`",
        path.display()
    ));
    Response::internal_error()
}

fn whole(fields: String, bytes: Arc<[u8]>) -> Response {
    Response {
        content: Content::Bytes(bytes.clone()),
        ..Response::head(fields, Some(bytes.len() as u64))
    }
}
