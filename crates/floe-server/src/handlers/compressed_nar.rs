//! NARs that are sent compressed with zstd.

use std::sync::Arc;

use floe_store::StoreError;

use super::nar_fields::{NAR_TYPE, cache_control};
use crate::body::nar_reader::NarReader;
use crate::body::{Piece, Stream};
use crate::caches::compressed_nar_cache::ZSTD_LEVEL;
use crate::config::Compress;
use crate::context::Context;
use crate::deferred::{DeferredRequest, NarTarget};
use crate::http::response::{CacheKind, CacheUse, Response, etag_matches};

/// Whether a compressed copy of a NAR may be in the cache, now or later.
pub(super) fn is_cacheable(context: &Context, nar: &NarTarget) -> bool {
    context.compressed_nars.is_some() && nar.narinfo.info.nar_size >= COMPRESSED_MIN
}

/// Responds to a client that accepts zstd and wants all of a NAR. `None` if the NAR is to be sent
/// as it is: it is small, or no compressed copy is ready, and `--compress always` is not set or too
/// many NARs are being compressed.
pub(super) fn respond(
    context: &Context,
    nar: &NarTarget,
    request: &DeferredRequest,
) -> Result<Option<Response>, StoreError> {
    let narinfo = &*nar.narinfo;
    let size = narinfo.info.nar_size;
    if size < COMPRESSED_MIN {
        return Ok(None);
    }
    let etag = format!("\"{}-zstd\"", narinfo.nar_hash());
    let fields = format!(
        "{NAR_TYPE}{}Content-Encoding: zstd\r\nVary: Accept-Encoding\r\nETag: {etag}\r\n",
        cache_control(context, nar)
    );
    let path = context.layout.real_path(&narinfo.info.path);
    if etag_matches(request.if_none_match.as_deref(), &etag) {
        return Ok(Some(Response::not_modified(fields)));
    }
    if let Some(cache) = &context.compressed_nars {
        if let Some((file, len)) = cache.open_ready(narinfo.nar_hash()) {
            let piece = Piece::File {
                file: Arc::new(file.into()),
                offset: 0,
                end: len,
            };
            let response = Response::streamed(fields, Some(len), [piece]);
            return Ok(Some(
                response.noting(CacheKind::CompressedNar, CacheUse::Hit),
            ));
        }
        cache.enqueue(narinfo, path.clone(), nar.identity);
    }
    if context.compress != Compress::Always {
        return Ok(None);
    }
    if request.mode.head_only {
        return Ok(Some(Response::head(fields, None)));
    }
    let Some(permit) = context.encoders.acquire(1) else {
        context.metrics.count_encoder_limit();
        return Ok(None);
    };
    let plan = context.nars.plan(narinfo.hash, nar.identity, &path)?;
    if plan.nar_size() != size {
        return Ok(None);
    }
    let reader = NarReader::new(plan, &path)?;
    let encoder = zstd::stream::read::Encoder::new(reader, ZSTD_LEVEL);
    let encoder = encoder.map_err(|source| StoreError::Io {
        action: "compress",
        path,
        source,
    })?;
    let piece = Piece::Stream(Stream {
        reader: Box::new(encoder),
        chunked: !request.mode.is_http10,
        log_decoder: None,
        _encoder: Some(permit),
    });
    let response = Response::streamed(fields, None, [piece]);
    Ok(Some(
        response.noting(CacheKind::CompressedNar, CacheUse::Miss),
    ))
}

/// Smaller NARs fit into a packet or two without compression.
const COMPRESSED_MIN: u64 = 4 * 1024;
