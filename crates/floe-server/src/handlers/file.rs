//! `/serve/HASH/PATH`: a file in a path, or the page of a directory.
//!
//! Symlinks are followed as on the machine of the store, but never out of the store, and into no
//! path that is not valid.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_store::{StoreError, list_directory, open_beneath};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, CWD, FileType, fstat, statat};

use super::range_response::{Version, applicable_range, file_response};
use crate::caches::narinfo_cache::{CachedNarInfo, StoreSession};
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::html::{self, escaped};
use crate::http::response::{Response, etag_matches};

/// Finds files by paths with symlinks.
pub(crate) struct Resolver<'t> {
    pub(crate) context: &'t Context,
    pub(crate) session: &'t mut StoreSession,
}

/// Responds with the file or directory at `path` within a store path.
pub(crate) fn respond(
    resolver: &mut Resolver<'_>,
    narinfo: &CachedNarInfo,
    path: &str,
    request: &DeferredRequest,
) -> Result<Response, StoreError> {
    // Only the targets of symlinks may have `..`.
    if path.split('/').any(|name| name == "..") {
        return Ok(no_such_file());
    }
    match resolver.resolve(&narinfo.info.path, path)? {
        None => Ok(no_such_file()),
        Some(Found::File(file)) => resolver.respond_file(file, content_type(path), request),
        Some(Found::Directory(directory)) => {
            let context = resolver.context;
            let base = format!("{}/serve/{}", context.prefix, narinfo.hash.as_str());
            let name = narinfo.info.path.name();
            let make = || directory_page((&base, name), path, &directory).map(Some);
            let key = (narinfo.hash, Some(path.to_owned()));
            let page = context.nars.text(key, &directory, make)?;
            Ok(page.map_or_else(no_such_file, |page| html::respond(200, PAGE_FIELDS, page)))
        }
    }
}

fn no_such_file() -> Response {
    Response::not_found("no such file\n")
}

enum Found {
    File(FoundFile),
    Directory(PathBuf),
}

struct FoundFile {
    file: OwnedFd,
    size: u64,
    /// The store path that the file is in. Symlinks may have led out of the one in the URL.
    store_path: StorePath,
}

impl Resolver<'_> {
    fn respond_file(
        &mut self,
        found: FoundFile,
        content_type: &str,
        request: &DeferredRequest,
    ) -> Result<Response, StoreError> {
        let etag = match self.find_valid(&found.store_path)? {
            Some(narinfo) => narinfo.nar_etag.clone(),
            None => "\"\"".into(),
        };
        let fields = format!(
            "Cache-Control: max-age=3600\r\nAccept-Ranges: bytes\r\n\
             X-Content-Type-Options: nosniff\r\n{SANDBOX}ETag: {etag}\r\n"
        );
        if etag_matches(request.if_none_match.as_deref(), &etag) {
            return Ok(Response::not_modified(fields));
        }
        let version = Version {
            fields,
            content_type: &format!("Content-Type: {content_type}\r\n"),
            len: found.size,
        };
        let range = applicable_range(request, &etag);
        Ok(file_response(version, range, found.file))
    }

    /// Follows a path from a store path on. `None` if it leads nowhere, or out of the store.
    ///
    /// This walks name by name, as the kernel does, because each store path that a symlink enters
    /// has to be valid. [`open`] then makes the kernel refuse symlinks that were put there since.
    fn resolve(&mut self, start: &StorePath, path: &str) -> Result<Option<Found>, StoreError> {
        let layout = &self.context.layout;
        let mut todo: VecDeque<Vec<u8>> = names(path.as_bytes()).collect();
        todo.push_front(start.as_str().into());
        let mut current = PathBuf::new();
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            if name == b".." {
                current.pop();
                continue;
            }
            let enters_store_path = current.as_os_str().is_empty();
            if enters_store_path && !self.is_valid(&name)? {
                return Ok(None);
            }
            current.push(OsStr::from_bytes(&name));
            let real = layout.real_store_dir.join(&current);
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
            let rest = if target.starts_with(b"/") {
                current.clear();
                match target.strip_prefix(layout.store_dir.as_str().as_bytes()) {
                    Some(inside @ [b'/', ..]) => inside,
                    _ => return Ok(None),
                }
            } else {
                current.pop();
                target
            };
            if links > LINKS_MAX {
                return Ok(None);
            }
            let rest: Vec<Vec<u8>> = names(rest).collect();
            for name in rest.into_iter().rev() {
                todo.push_front(name);
            }
        }
        if current.as_os_str().is_empty() {
            Ok(None)
        } else {
            Ok(open(&layout.real_store_dir, &current))
        }
    }

    fn is_valid(&mut self, name: &[u8]) -> Result<bool, StoreError> {
        let path = std::str::from_utf8(name).ok();
        match path.and_then(|name| StorePath::parse(name).ok()) {
            Some(path) => Ok(self.find_valid(&path)?.is_some()),
            None => Ok(false),
        }
    }

    fn find_valid(&mut self, path: &StorePath) -> Result<Option<Arc<CachedNarInfo>>, StoreError> {
        let narinfos = &self.context.narinfos;
        let found = narinfos.get(self.session, path.hash_part())?;
        let found = found.map(|(narinfo, _)| narinfo);
        Ok(found.filter(|narinfo| narinfo.info.path == *path))
    }
}

/// Splits a path into names, without the empty ones and `.`.
fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
}

/// Opens a path without symlinks below the store. `None` if a symlink was put there since it was
/// resolved.
fn open(store: &Path, relative: &Path) -> Option<Found> {
    let file = open_beneath(store, relative).ok()?;
    let stat = fstat(&file).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let top = relative.components().next()?.as_os_str().to_str()?;
            Some(Found::File(FoundFile {
                file,
                size: u64::try_from(stat.st_size).ok()?,
                store_path: StorePath::parse(top).ok()?,
            }))
        }
        FileType::Directory => Some(Found::Directory(store.join(relative))),
        _ => None,
    }
}

/// Makes a page with a link to each entry of a directory in the store path with a name, whose files
/// are below `base`.
fn directory_page(
    (base, name): (&str, &str),
    path: &str,
    directory: &Path,
) -> Result<String, StoreError> {
    let failed = |source| StoreError::Io {
        action: "list",
        path: directory.into(),
        source,
    };
    let mut names = Vec::new();
    for entry in list_directory(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let mut name = entry.file_name().as_bytes().to_vec();
        if entry.is_dir().unwrap_or(false) {
            name.push(b'/');
        }
        names.push(name);
    }
    names.sort_unstable();
    let path = path.trim_matches('/');
    let folder_of = |path: &str| match path {
        "" => format!("{base}/"),
        path => format!("{base}/{}/", percent_encode(path.as_bytes(), IN_PATH)),
    };
    let folder = folder_of(path);
    let mut body = String::new();
    if !path.is_empty() {
        let (parent, _) = path.rsplit_once('/').unwrap_or_default();
        let parent = folder_of(parent);
        body.push_str(&format!(
            "<nav><a href=\"{parent}\">Parent directory</a></nav>\n"
        ));
    }
    let title = format!("{name}/{path}");
    let heading = escaped(&title);
    body.push_str(&format!("<h1>{heading}</h1>\n<ul class=\"paths\">\n"));
    for name in names {
        let link = percent_encode(&name, IN_PATH);
        let shown = escaped(&String::from_utf8_lossy(&name));
        body.push_str(&format!(
            "<li><a href=\"{folder}{link}\">{shown}</a></li>\n"
        ));
    }
    body.push_str("</ul>\n");
    Ok(html::page(&title, &body))
}

/// Returns the media type for a file name. Unknown files are downloaded, not shown.
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

/// The characters that are percent-encoded in the path of a link.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+');

/// The limit of Linux.
const LINKS_MAX: u32 = 40;

const PAGE_FIELDS: &str = "Cache-Control: no-cache\r\n";

/// Lets a browser show a page of the store with its own images and styles, and run nothing.
const SANDBOX: &str = "Content-Security-Policy: sandbox; default-src 'self' 'unsafe-inline' data:; \
                       script-src 'none'; object-src 'none'; base-uri 'none'; \
                       form-action 'none'\r\n";
