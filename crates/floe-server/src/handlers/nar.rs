//! `/nar/…`: the NAR of a path.
//!
//! 1. a wrong NAR hash is 404: the path may have been made again;
//! 2. a client that takes zstd gets a ready compressed copy, or one is made for the next;
//! 3. a small NAR is bytes in memory, of which the hash was compared;
//! 4. of any other there is a plan: its size must be the one that the database has.

use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use floe_store::StoreError;

use super::compressed_nar;
use super::range_response::{applicable_range, range_response};
use crate::body::text::Text;
use crate::body::{Body, NarRange, Piece, readahead};
use crate::caches::nar_cache::SMALL_NAR_MAX;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::caches::tree_identity::tree_identity;
use crate::config::Compress;
use crate::context::{Context, DeferredRequest};
use crate::http::range;
use crate::http::request::{Method, Request};
use crate::http::response::{Content, Response, etag_matches};
use crate::http::route::HashPart;

/// What can be said without touching more than one inode.
pub(crate) fn try_respond(
    context: &Context,
    hash: HashPart,
    nar_hash: Option<&str>,
    entry: &CachedNarInfo,
    request: &Request<'_>,
) -> Option<Response> {
    if let Some(answer) = refusal(nar_hash, entry) {
        return Some(answer);
    }
    // Nothing is said of a path of which the files are gone.
    let identity = match tree_identity(&context.layout.real_path(&entry.info.path)) {
        Ok(identity) => identity,
        Err(error) => return Some(context.error_response(&error)),
    };
    let may_encode = context.compress != Compress::Off;
    let fields = || {
        format!(
            "{NAR_TYPE}{}",
            fields(entry, nar_hash.is_some(), may_encode)
        )
    };
    if etag_matches(request.if_none_match, &etag(entry)) {
        return Some(Response::not_modified(fields()));
    }
    let wants_range = request.range.is_some() && request.method == Method::Get;
    if wants_range || (may_encode && request.accepts_zstd) {
        return None;
    }
    // The database says how long it is; whoever asks for no more gets no more work done.
    let length = entry.info.nar_size;
    if request.method == Method::Head && length != 0 {
        return Some(Response {
            status: 200,
            fields: fields().into(),
            length: Some(length),
            content: Content::Text(Text::Static("")),
        });
    }
    if length > SMALL_NAR_MAX {
        return None;
    }
    let bytes = context
        .nars
        .get_small(hash, &entry.info.nar_hash, identity)?;
    Some(whole(fields(), bytes))
}

/// The rest.
pub(crate) fn respond_blocking(
    context: &Context,
    hash: HashPart,
    nar_hash: Option<&str>,
    entry: &Arc<CachedNarInfo>,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    if let Some(answer) = refusal(nar_hash, entry) {
        return Ok(answer);
    }
    let path = context.layout.real_path(&entry.info.path);
    if request.accepts_zstd
        && request.range.is_none()
        && context.compress != Compress::Off
        && let Some(answer) = compressed_nar::answer(context, entry, nar_hash.is_some(), request)?
    {
        return Ok(answer);
    }
    let fields = fields(entry, nar_hash.is_some(), context.compress != Compress::Off);
    let size = entry.info.nar_size;
    if request.range.is_none() && (1..=SMALL_NAR_MAX).contains(&size) {
        return match context.nars.read_small(hash, entry.info.nar_hash, &path)? {
            Some(bytes) => Ok(whole(format!("{NAR_TYPE}{fields}"), bytes)),
            None => Ok(differs(context, &path)),
        };
    }
    let version = etag(entry);
    let wanted = applicable_range(
        request.range.as_deref(),
        request.if_range.as_deref(),
        &version,
    );
    let plan = context.nars.plan(hash, &path)?;
    if size != 0 && plan.nar_size() != size {
        return Ok(differs(context, &path));
    }
    let len = plan.nar_size();
    if request.range.is_none()
        && !request.head_only
        && let Some(pieces) = readahead::split(&context.nars, &plan, &path)?
    {
        return Ok(Response {
            status: 200,
            fields: format!("{NAR_TYPE}{fields}").into(),
            length: Some(len),
            content: Content::Body(Box::new(Body::of(pieces))),
        });
    }
    let is_first = Cell::new(true);
    range_response(fields, NAR_TYPE, len, range::parse(wanted, len), |range| {
        let (plan, Range { start, end }) = (plan.clone(), range);
        match is_first.replace(false) {
            true => NarRange::begin(plan, &path, start, end).map(Piece::Nar),
            false => Ok(Piece::Nar(NarRange::later(plan, &path, start, end))),
        }
    })
}

/// What a worker does after it has sent a NAR: packs its small files if it was sent before.
pub(crate) fn after(context: &Context, entry: &CachedNarInfo) {
    let path = context.layout.real_path(&entry.info.path);
    let is_small = (1..=SMALL_NAR_MAX).contains(&entry.info.nar_size);
    if let Some(hash) = HashPart::parse(entry.info.path.hash_part())
        && !is_small
        && let Err(error) = context.nars.pack(hash, &path)
    {
        (context.warn)(&error.to_string());
    }
}

fn refusal(nar_hash: Option<&str>, entry: &CachedNarInfo) -> Option<Response> {
    let is_wrong = nar_hash.is_some_and(|nar_hash| nar_hash != entry.nar_hash);
    is_wrong.then(|| Response::not_found("wrong NAR hash; the path may have been made again\n"))
}

/// The files of a path are not what was registered.
fn differs(context: &Context, path: &Path) -> Response {
    (context.warn)(&format!(
        "{} is not what the database says; check it with `floe verify`, and repair it with \
         `nix-store --repair-path`",
        path.display()
    ));
    Response::internal_error()
}

fn whole(fields: String, bytes: Arc<[u8]>) -> Response {
    Response {
        status: 200,
        fields: fields.into(),
        length: Some(bytes.len() as u64),
        content: Content::Bytes(bytes),
    }
}

/// A NAR has no other version than that with its hash.
pub(crate) fn etag(entry: &CachedNarInfo) -> String {
    format!("\"{}\"", entry.nar_hash)
}

/// The fields of a NAR that is not compressed_nar, but for its type.
fn fields(entry: &CachedNarInfo, names_hash: bool, may_encode: bool) -> String {
    let mut fields = String::with_capacity(FIELDS_LEN_TYPICAL);
    fields.push_str(cache_control(names_hash));
    if may_encode {
        fields.push_str("Vary: Accept-Encoding\r\n");
    }
    fields.push_str("Accept-Ranges: bytes\r\nETag: \"");
    fields.push_str(&entry.nar_hash);
    fields.push_str("\"\r\n");
    fields
}

/// Only a URL that names the NAR hash never means anything else.
pub(crate) fn cache_control(names_hash: bool) -> &'static str {
    match names_hash {
        true => "Cache-Control: public, max-age=31536000, immutable\r\n",
        false => "Cache-Control: max-age=3600\r\n",
    }
}

pub(crate) const NAR_TYPE: &str = "Content-Type: application/x-nix-nar\r\n";

/// So that the fields are put together in one allocation.
const FIELDS_LEN_TYPICAL: usize = 256;
