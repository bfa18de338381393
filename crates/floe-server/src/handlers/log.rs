//! `/log/NAME`: the log of the build that made a path.
//!
//! Nix writes the log of the derivation `XYREST` to `drvs/XY/REST` in its log directory, plain or
//! as `.bz2`. Logs stay when the derivation is deleted. So the database is only needed to find
//! the deriver of an output.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::{HashPart, StorePath};
use floe_store::StoreError;
use rustix::fs::Dir;
use rustix::io::Errno;

use super::range_response::{Version, file_response};
use crate::body::{Piece, Stream};
use crate::caches::narinfo_cache::StoreSession;
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::http::refusal::Refusal;
use crate::http::response::Response;
use crate::http::route::LogQuery;
use crate::open_beneath::open_beneath;

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
    let response = find(&context.log_dir, &derivation).and_then(|found| match found {
        Some(Log::Plain(file)) => plain(file, request),
        Some(Log::Bzip2(file)) => Ok(decompressed(context, file, request)),
        None => Ok(no_such_log()),
    });
    response.map_err(|source| StoreError::Io {
        action: "read the log of",
        path: context.log_dir.join(derivation.as_str()),
        source,
    })
}

enum Log {
    Plain(File),
    Bzip2(File),
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
        (None, LogQuery::HashPart(hash)) => deleted_derivation(&context.log_dir, *hash),
        (None, LogQuery::Path(_)) => None,
    })
}

/// Finds a derivation that has a log but is no longer valid.
fn deleted_derivation(log_dir: &Path, hash: HashPart) -> Option<StorePath> {
    let (first, rest) = hash.as_str().split_at_checked(FANOUT_LEN)?;
    let directory = open_beneath(log_dir, &Path::new("drvs").join(first)).ok()?;
    let mut entries = Dir::new(directory).ok()?;
    entries.by_ref().flatten().find_map(|entry| {
        let name = entry.file_name().to_str().ok()?;
        let name = name.strip_suffix(".bz2").unwrap_or(name);
        let path = StorePath::parse(&format!("{first}{name}")).ok()?;
        (name.starts_with(rest) && path.is_derivation()).then_some(path)
    })
}

/// Opens the log of a derivation, in the place of newer and then in that of older Nix versions.
fn find(log_dir: &Path, derivation: &StorePath) -> io::Result<Option<Log>> {
    let name = derivation.as_str();
    let (first, rest) = name.split_at_checked(FANOUT_LEN).unwrap_or((name, ""));
    let drvs = Path::new("drvs");
    for path in [drvs.join(first).join(rest), drvs.join(name)] {
        if let Some(file) = open(log_dir, &path)? {
            return Ok(Some(Log::Plain(file)));
        }
        let mut compressed = path.into_os_string();
        compressed.push(".bz2");
        if let Some(file) = open(log_dir, &PathBuf::from(compressed))? {
            return Ok(Some(Log::Bzip2(file)));
        }
    }
    Ok(None)
}

/// Opens a log. `None` if there is none, or something else than a regular file.
fn open(log_dir: &Path, relative: &Path) -> io::Result<Option<File>> {
    match open_beneath(log_dir, relative) {
        Ok(file) => {
            let file = File::from(file);
            Ok(file.metadata()?.is_file().then_some(file))
        }
        // NOTDIR and LOOP stand for a symbolic link, NXIO for a socket.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
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

/// Nix splits the directory of logs by the first characters of the name.
const FANOUT_LEN: usize = 2;

const TYPE: &str = "Content-Type: text/plain\r\n";

/// A log grows while its build runs, and the next build replaces it.
const NO_CACHE: &str = "Cache-Control: no-cache\r\n";
