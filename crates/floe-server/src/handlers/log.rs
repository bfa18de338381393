//! `/log/NAME`: the log of the build that made a path.
//!
//! Logs stay when the derivation is deleted. So the database is only needed to find the deriver of
//! an output.

use std::fs::File;
use std::io;

use floe_format::StorePath;
use floe_store::{BuildLog, StoreError, find_logged_derivation};

use super::range_response::{Version, file_response};
use crate::body::{Piece, Stream};
use crate::caches::narinfo_cache::StoreSession;
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::http::refusal::Refusal;
use crate::http::response::Response;
use crate::http::route::LogQuery;

/// Responds with the log of a derivation, or of the derivation that made an output.
pub(crate) fn respond(
    context: &Context,
    query: &LogQuery,
    request: &DeferredRequest,
    session: &mut StoreSession,
) -> Result<Response, StoreError> {
    let Some(derivation) = derivation(context, query, session)? else {
        return Ok(no_such_log());
    };
    let response = BuildLog::open(&context.log_dir, &derivation).and_then(|found| match found {
        Some(BuildLog::Plain(file)) => plain(file, request),
        Some(BuildLog::Bzip2(file)) => Ok(decompressed(context, file, request)),
        None => Ok(no_such_log()),
    });
    response.map_err(|source| StoreError::Io {
        action: "read the log of",
        path: context.log_dir.join(derivation.as_str()),
        source,
    })
}

fn no_such_log() -> Response {
    Response::not_found("no such log\n")
}

/// Finds the derivation whose log is asked for.
fn derivation(
    context: &Context,
    query: &LogQuery,
    session: &mut StoreSession,
) -> Result<Option<StorePath>, StoreError> {
    let hash = match query {
        LogQuery::Path(path) if path.is_derivation() => return Ok(Some(path.clone())),
        LogQuery::Path(path) => path.hash_part(),
        LogQuery::HashPart(hash) => *hash,
    };
    let found = context.narinfos.get(session, hash)?.map(|(found, _)| found);
    Ok(match (found, query) {
        (Some(found), LogQuery::Path(path)) if found.info.path != *path => None,
        (Some(found), _) if found.info.path.is_derivation() => Some(found.info.path.clone()),
        (Some(found), _) => found.info.deriver.clone(),
        (None, LogQuery::HashPart(hash)) => find_logged_derivation(&context.log_dir, *hash),
        (None, LogQuery::Path(_)) => None,
    })
}

fn plain(file: File, request: &DeferredRequest) -> io::Result<Response> {
    let len = file.metadata()?.len();
    let version = Version {
        fields: format!("{NO_CACHE}Accept-Ranges: bytes\r\n"),
        content_type: TYPE,
        len,
    };
    let range = request.range.as_deref();
    Ok(file_response(version, range, file))
}

/// Decompresses a log while it is sent. Its length is not known beforehand.
fn decompressed(context: &Context, file: File, request: &DeferredRequest) -> Response {
    let fields = format!("{NO_CACHE}{TYPE}");
    if request.mode.head_only {
        return Response::head(fields, None);
    }
    let Some(permit) = context.log_decoders.acquire(1) else {
        return Response::refused(Refusal::LogDecoderLimit);
    };
    let piece = Piece::Stream(Stream {
        reader: Box::new(bzip2::read::MultiBzDecoder::new(file)),
        chunked: !request.mode.is_http10,
        log_decoder: Some(permit),
        _encoder: None,
    });
    Response::streamed(fields, None, [piece])
}

/// How many compressed logs are sent at once. Each decoder has about 4 MiB until its client has
/// received the log, so all of them together have 64 MiB. People read logs, and a browser or a
/// `nix log` takes a log at once.
pub(crate) const DECODERS_MAX: u64 = 16;

const TYPE: &str = "Content-Type: text/plain\r\n";

/// A log grows while its build runs, and the next build replaces it.
const NO_CACHE: &str = "Cache-Control: no-cache\r\n";
