//! NARs that go out compressed.

use std::sync::Arc;

use floe_store::StoreError;

use super::nar::{NAR_TYPE, cache_control};
use crate::body::nar_reader::NarReader;
use crate::body::text::Text;
use crate::body::{Body, Piece};
use crate::caches::compressed_nar_cache::LEVEL;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::caches::tree_identity::tree_identity;
use crate::config::Compress;
use crate::context::{Context, DeferredRequest};
use crate::http::response::{Content, Response, etag_matches};
use crate::http::route::HashPart;

/// The answer to a client that takes zstd and wants all of a NAR, if it is to be encoded.
pub(crate) fn answer(
    context: &Context,
    entry: &CachedNarInfo,
    names_hash: bool,
    request: &DeferredRequest,
) -> Result<Option<Response>, StoreError> {
    let size = entry.info.nar_size;
    if size < COMPRESSED_MIN {
        return Ok(None);
    }
    let etag = format!("\"{}-zstd\"", entry.nar_hash);
    let fields = format!(
        "{NAR_TYPE}{}Content-Encoding: zstd\r\nVary: Accept-Encoding\r\nETag: {etag}\r\n",
        cache_control(names_hash)
    );
    let path = context.layout.real_path(&entry.info.path);
    // A path of which the files are gone is not served from a copy either.
    let identity = tree_identity(&path)?;
    if etag_matches(request.if_none_match.as_deref(), &etag) {
        return Ok(Some(Response::not_modified(fields)));
    }
    if let Some(compressed_nars) = &context.compressed_nars {
        if let Some((file, len)) = compressed_nars.open_ready(&entry.nar_hash) {
            let piece = Piece::File {
                file: Arc::new(file.into()),
                offset: 0,
                end: len,
            };
            return Ok(Some(body(fields, Some(len), piece)));
        }
        compressed_nars.enqueue(entry, path.clone(), identity);
    }
    if context.compress != Compress::Always {
        return Ok(None);
    }
    if request.head_only {
        return Ok(Some(Response {
            status: 200,
            fields: fields.into(),
            length: None,
            content: Content::Text(Text::Static("")),
        }));
    }
    let Some(hash) = HashPart::parse(entry.info.path.hash_part()) else {
        return Ok(None);
    };
    let plan = context.nars.plan(hash, &path)?;
    if plan.nar_size() != size {
        return Ok(None);
    }
    let encoder = NarReader::new(plan, &path)
        .map(|reader| zstd::stream::read::Encoder::new(reader, LEVEL))?
        .map_err(|source| StoreError::Io {
            action: "compressing",
            path: path.clone(),
            source,
        })?;
    let piece = Piece::Stream {
        reader: Box::new(encoder),
        in_chunks: !request.is_http10,
    };
    Ok(Some(body(fields, None, piece)))
}

fn body(fields: String, length: Option<u64>, piece: Piece) -> Response {
    Response {
        status: 200,
        fields: fields.into(),
        length,
        content: Content::Body(Box::new(Body::of([piece]))),
    }
}

/// Smaller NARs fit into a packet or two as they are.
const COMPRESSED_MIN: u64 = 4 * 1024;
