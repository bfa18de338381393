//! `/serve/HASH/PATH`: a single file of a path, or what is in a directory.
//!
//! Symlinks are followed as the machine that has the store would follow them, but never out of
//! the store, and into no path that is not valid.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_store::StoreError;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};

use super::range_response::{applicable_range, range_response};
use crate::body::Piece;
use crate::caches::narinfo_cache::StoreSession;
use crate::context::{Context, DeferredRequest};
use crate::http::range;
use crate::http::response::{Response, etag_matches};
use crate::http::route::HashPart;

/// The file or directory at a path within a store path.
pub(crate) fn file(
    context: &Context,
    hash: HashPart,
    path: &str,
    request: &DeferredRequest,
    session: &mut StoreSession,
) -> Result<Option<Response>, StoreError> {
    let Some(entry) = context.find(session, hash)? else {
        return Ok(None);
    };
    // What is asked for is plain; only symlinks may climb.
    if path.split('/').any(|name| name == "..") {
        return Ok(Some(no_file()));
    }
    let start = entry.info.path.clone();
    let Some(found) = resolve(context, session, &start, path)? else {
        return Ok(Some(no_file()));
    };
    match found {
        Found::File { file, size, of } => {
            // Symlinks may have led into another path, of which the file is a part then.
            let nar_hash = match HashPart::parse(of.hash_part()) {
                Some(hash) => context
                    .find(session, hash)?
                    .map(|entry| entry.nar_hash.clone()),
                None => None,
            };
            let etag = format!("\"{}\"", nar_hash.unwrap_or_default());
            let kind = content_type(path);
            let fields = format!(
                "Cache-Control: max-age=3600\r\nAccept-Ranges: bytes\r\n\
                 X-Content-Type-Options: nosniff\r\nETag: {etag}\r\n"
            );
            if etag_matches(request.if_none_match.as_deref(), &etag) {
                return Ok(Some(Response::not_modified(fields)));
            }
            let wanted =
                applicable_range(request.range.as_deref(), request.if_range.as_deref(), &etag);
            let kind = format!("Content-Type: {kind}\r\n");
            let file = Arc::new(file);
            let answer = range_response(fields, &kind, size, range::parse(wanted, size), |range| {
                Ok::<Piece, StoreError>(Piece::File {
                    file: Arc::clone(&file),
                    offset: range.start,
                    end: range.end,
                })
            });
            answer.map(Some)
        }
        Found::Directory(directory) => {
            let base = format!("{}/serve/{}", context.prefix, hash.as_str());
            let make = || page(&base, path, &directory).map(Some);
            let key = (hash, Some(path.to_owned()));
            let text = context.nars.text(key, &directory, make)?;
            Ok(text.map(|text| Response::text(200, PAGE_FIELDS, text)))
        }
    }
}

fn no_file() -> Response {
    Response::not_found("no such file\n")
}

enum Found {
    File {
        file: OwnedFd,
        size: u64,
        /// The store path that it is in.
        of: StorePath,
    },
    Directory(PathBuf),
}

/// Follows a path from a store path. `None` if it leads nowhere, or out of the store.
fn resolve(
    context: &Context,
    session: &mut StoreSession,
    start: &StorePath,
    path: &str,
) -> Result<Option<Found>, StoreError> {
    let store = &context.layout.real_store_dir;
    let mut todo: VecDeque<Vec<u8>> = names(path.as_bytes());
    todo.push_front(start.as_str().into());
    let mut current = PathBuf::new();
    let mut links = 0;
    while let Some(name) = todo.pop_front() {
        if name == b".." {
            current.pop();
            continue;
        }
        let is_top = current.as_os_str().is_empty();
        if is_top && !is_valid(context, session, &name)? {
            return Ok(None);
        }
        current.push(std::ffi::OsStr::from_bytes(&name));
        let real = store.join(&current);
        let Ok(stat) = statat(CWD, &real, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(None);
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            continue;
        }
        links += 1;
        let Ok(target) = std::fs::read_link(&real) else {
            return Ok(None);
        };
        let target = target.as_os_str().as_bytes();
        let rest = match target.strip_prefix(b"/") {
            None => {
                current.pop();
                target
            }
            Some(_) => {
                current.clear();
                let inside = target.strip_prefix(context.layout.store_dir.as_str().as_bytes());
                match inside {
                    Some(inside @ [b'/', ..]) => inside,
                    _ => return Ok(None),
                }
            }
        };
        if links > LINKS_MAX {
            return Ok(None);
        }
        for name in names(rest).into_iter().rev() {
            todo.push_front(name);
        }
    }
    match current.as_os_str().is_empty() {
        true => Ok(None),
        false => Ok(open(store, &current)),
    }
}

fn names(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .collect()
}

fn is_valid(
    context: &Context,
    session: &mut StoreSession,
    name: &[u8],
) -> Result<bool, StoreError> {
    let path = std::str::from_utf8(name)
        .ok()
        .and_then(|name| StorePath::parse(name).ok());
    let hash = path
        .as_ref()
        .and_then(|path| HashPart::parse(path.hash_part()));
    let (Some(path), Some(hash)) = (path, hash) else {
        return Ok(false);
    };
    let entry = context.find(session, hash)?;
    Ok(entry.is_some_and(|entry| entry.info.path == path))
}

/// Opens what was found. Whoever puts a symlink there in between finds it refused.
fn open(store: &Path, relative: &Path) -> Option<Found> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let store_fd = rustix::fs::open(store, flags, Mode::empty()).ok()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = openat2(&store_fd, relative, flags, Mode::empty(), resolve).ok()?;
    let stat = fstat(&file).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let top = relative.components().next()?.as_os_str().to_str()?;
            Some(Found::File {
                file,
                size: u64::try_from(stat.st_size).ok()?,
                of: StorePath::parse(top).ok()?,
            })
        }
        FileType::Directory => Some(Found::Directory(store.join(relative))),
        _ => None,
    }
}

/// A page with a link to each entry.
fn page(base: &str, path: &str, directory: &Path) -> Result<String, StoreError> {
    let failed = |source| StoreError::Io {
        action: "listing",
        path: directory.into(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let mut name = entry.file_name().as_bytes().to_vec();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            name.push(b'/');
        }
        names.push(name);
    }
    names.sort_unstable();
    let mut text = format!("<!DOCTYPE html>\n<title>/{}</title>\n<pre>\n", escape(path));
    let within = match path {
        "" => String::new(),
        path => format!("{}/", percent_encode(path.as_bytes(), IN_PATH)),
    };
    for name in names {
        let link = percent_encode(&name, IN_PATH);
        let shown = String::from_utf8_lossy(&name);
        text.push_str(&format!(
            "<a href=\"{base}/{within}{link}\">{}</a>\n",
            escape(&shown)
        ));
    }
    text.push_str("</pre>\n");
    Ok(text)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// What a browser should take a file for. Whatever is not plainly text for people is bytes.
fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "txt" | "md" | "nix" | "drv" | "sh" | "conf" | "patch" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

/// What may stand in a path as it is.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+');

/// As many as Linux follows.
const LINKS_MAX: u32 = 40;

const PAGE_FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-cache\r\n\
                           X-Content-Type-Options: nosniff\r\n";
