//! `/log/NAME`: the log of the build that made a path.
//!
//! Logs lie in `drvs/XY/REST` of the log directory, `XYREST` being the name of the derivation,
//! plain or as `.bz2`. They outlive the derivation, so the database is asked only for the
//! deriver of an output.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_store::StoreError;

use super::range_response::range_response;
use crate::body::text::Text;
use crate::body::{Body, Piece};
use crate::caches::narinfo_cache::StoreSession;
use crate::context::{Context, DeferredRequest};
use crate::http::range;
use crate::http::response::{Content, Response};
use crate::http::route::{HashPart, LogQuery};

/// The log of a derivation, or of the derivation that made an output.
pub(crate) fn log(
    context: &Context,
    of: &LogQuery,
    request: &DeferredRequest,
    session: &mut StoreSession,
) -> Result<Option<Response>, StoreError> {
    let Some(derivation) = derivation(context, of, session)? else {
        return Ok(Some(no_log()));
    };
    let answer = match find(&context.log_dir, &derivation) {
        Ok(Some(Log::Plain(file))) => plain(file, request),
        Ok(Some(Log::Compressed(file))) => Ok(compressed(file, request)),
        Ok(None) => Ok(no_log()),
        Err(error) => Err(error),
    };
    answer.map(Some).map_err(|source| StoreError::Io {
        action: "reading the log of",
        path: context.log_dir.join(derivation.as_str()),
        source,
    })
}

enum Log {
    Plain(File),
    Compressed(File),
}

fn no_log() -> Response {
    Response::not_found("no such log\n")
}

/// Whose log is meant.
fn derivation(
    context: &Context,
    of: &LogQuery,
    session: &mut StoreSession,
) -> Result<Option<StorePath>, StoreError> {
    let hash = match of {
        LogQuery::Path(path) if path.is_derivation() => return Ok(Some(path.clone())),
        LogQuery::Path(path) => HashPart::parse(path.hash_part()),
        LogQuery::HashPart(hash) => Some(*hash),
    };
    let Some(hash) = hash else { return Ok(None) };
    let known = context.find(session, hash)?;
    Ok(match (known, of) {
        (Some(entry), LogQuery::Path(path)) if entry.info.path != *path => None,
        (Some(entry), _) if entry.info.path.is_derivation() => Some(entry.info.path.clone()),
        (Some(entry), _) => entry.info.deriver.clone(),
        (None, LogQuery::HashPart(hash)) => deleted_derivation(&context.log_dir, *hash),
        (None, LogQuery::Path(_)) => None,
    })
}

/// The derivation with that hash part that has left a log, though it is no longer valid.
fn deleted_derivation(log_dir: &Path, hash: HashPart) -> Option<StorePath> {
    let (first, rest) = hash.as_str().split_at_checked(FANOUT_LEN)?;
    let directory = fs::read_dir(log_dir.join("drvs").join(first)).ok()?;
    directory.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let name = name.strip_suffix(".bz2").unwrap_or(&name);
        let path = StorePath::parse(&format!("{first}{name}")).ok()?;
        (name.starts_with(rest) && path.is_derivation()).then_some(path)
    })
}

/// The file of a log: where newer, then where older versions of Nix have put it.
fn find(log_dir: &Path, derivation: &StorePath) -> io::Result<Option<Log>> {
    let name = derivation.as_str();
    let (first, rest) = name.split_at_checked(FANOUT_LEN).unwrap_or((name, ""));
    let drvs = log_dir.join("drvs");
    for path in [drvs.join(first).join(rest), drvs.join(name)] {
        if let Some(file) = open(&path)? {
            return Ok(Some(Log::Plain(file)));
        }
        let mut compressed = path.into_os_string();
        compressed.push(".bz2");
        if let Some(file) = open(&PathBuf::from(compressed))? {
            return Ok(Some(Log::Compressed(file)));
        }
    }
    Ok(None)
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn plain(file: File, request: &DeferredRequest) -> io::Result<Response> {
    let len = file.metadata()?.len();
    let file = Arc::new(file.into());
    let ranges = range::parse(request.range.as_deref(), len);
    let fields = format!("{UNSURE}Accept-Ranges: bytes\r\n");
    range_response(fields, TYPE, len, ranges, |range| {
        Ok(Piece::File {
            file: Arc::clone(&file),
            offset: range.start,
            end: range.end,
        })
    })
}

/// How long a compressed log is will only be known at its end.
fn compressed(file: File, request: &DeferredRequest) -> Response {
    let content = match request.head_only {
        true => Content::Text(Text::Static("")),
        false => Content::Body(Box::new(Body::of([Piece::Stream {
            reader: Box::new(bzip2::read::MultiBzDecoder::new(file)),
            in_chunks: !request.is_http10,
        }]))),
    };
    Response {
        status: 200,
        fields: format!("{UNSURE}{TYPE}").into(),
        length: None,
        content,
    }
}

/// Nix splits the directory of logs by the first characters of the name.
const FANOUT_LEN: usize = 2;

const TYPE: &str = "Content-Type: text/plain\r\n";

/// A log grows while its build runs, and is written anew by the next build.
const UNSURE: &str = "Cache-Control: no-cache\r\n";
