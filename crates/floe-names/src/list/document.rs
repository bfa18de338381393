//! The text of a list: fetched or read, decompressed, and kept for the next command.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use floe_cache::{Document, DocumentRequest};
use floe_format::{Compression, base16};
use floe_hash::sha256;
use floe_store::open_regular_file;
use floe_transfer::Error;
use floe_transfer::codec::{XzChecks, decoder};
use floe_transfer::url::redact_credentials;
use serde::{Deserialize, Serialize};

use super::{ListUri, parse_list};
use crate::access::Access;
use crate::cache_file::{now, replace, seconds};
use crate::package::{Origin, SourceError};

/// The text of a list.
#[derive(Clone, Debug)]
pub(crate) struct PathList {
    /// A path in each line.
    pub(crate) text: String,
    /// When the server was asked last, in seconds since 1970.
    pub(crate) fetched_at: u64,
    /// Where the text comes from.
    pub(crate) origin: Origin,
}

/// The first line of a kept list.
#[derive(Deserialize, Serialize)]
struct Header {
    version: u32,
    place: String,
    /// The version of the document: its `ETag`, or the time and the size of a file.
    etag: Option<String>,
}

/// A kept list. The time of its file is the time at which the server was asked last.
struct Kept {
    file: PathBuf,
    etag: Option<String>,
    text: String,
    asked_at: SystemTime,
}

/// Reads a file, or fetches a document unless it was fetched within `ttl`. If the server does not
/// reply, returns the text that it sent before. `directory` is where texts are kept.
pub(crate) fn load(
    uri: &ListUri,
    (directory, ttl): (Option<&Path>, Duration),
    access: &dyn Access,
) -> Result<PathList, SourceError> {
    let kept_at = directory.map(|directory| kept_file(directory, uri));
    let kept = kept_at.as_deref().and_then(|file| Kept::read(file, uri));
    match uri {
        ListUri::File(path) => read_file(path, kept, kept_at.as_deref()),
        ListUri::Url(url) => match kept {
            Some(kept) if kept.is_newer_than(ttl) => Ok(kept.into_list(Origin::Remembered)),
            kept => fetch(uri, url, (kept, kept_at.as_deref()), access),
        },
    }
}

fn read_file(
    path: &Path,
    kept: Option<Kept>,
    kept_at: Option<&Path>,
) -> Result<PathList, SourceError> {
    let failed = |reason: String| SourceError::Reply {
        place: path.display().to_string(),
        reason,
    };
    let mut file = open_regular_file(path).map_err(|error| failed(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    let (mtime, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
    let version = format!(
        "{mtime}.{nanoseconds} {} {}",
        metadata.len(),
        metadata.ino()
    );
    if let Some(kept) = kept.filter(|kept| kept.etag.as_ref() == Some(&version)) {
        return Ok(kept.into_list(Origin::Source));
    }
    let mut body = Vec::new();
    let read = (&mut file)
        .take(BODY_LEN_MAX as u64 + 1)
        .read_to_end(&mut body);
    read.map_err(|error| failed(error.to_string()))?;
    let text = decoded(&body).map_err(failed)?;
    // A plain file is read as fast as a kept one.
    if text.len() != body.len()
        && let Some(kept_at) = kept_at
    {
        let uri = ListUri::File(path.to_owned());
        keep(kept_at, &uri, Some(version), &text);
    }
    Ok(PathList {
        text,
        fetched_at: now(),
        origin: Origin::Source,
    })
}

fn fetch(
    uri: &ListUri,
    url: &str,
    (kept, kept_at): (Option<Kept>, Option<&Path>),
    access: &dyn Access,
) -> Result<PathList, SourceError> {
    let request = DocumentRequest {
        url: url.to_owned(),
        accept: "*/*",
        known_etag: kept.as_ref().and_then(|kept| kept.etag.clone()),
        len_max: BODY_LEN_MAX,
        deadline: DEADLINE,
    };
    let reply = access.fetch(vec![request]).map(|mut replies| replies.pop());
    let failed = |reason: String| SourceError::Reply {
        place: redact_credentials(url),
        reason,
    };
    let failure = match reply {
        Ok(Some(Ok(Document::Unchanged))) => {
            if let Some(kept) = kept {
                kept.touch();
                return Ok(PathList {
                    fetched_at: now(),
                    ..kept.into_list(Origin::Source)
                });
            }
            failed("the server sends no document".into())
        }
        Ok(Some(Ok(Document::Found { body, etag }))) => match decoded(&body) {
            Ok(text) => {
                if let Some(kept_at) = kept_at {
                    keep(kept_at, uri, etag, &text);
                }
                return Ok(PathList {
                    text,
                    fetched_at: now(),
                    origin: Origin::Source,
                });
            }
            Err(reason) => failed(reason),
        },
        Ok(Some(Ok(Document::Absent)) | None) => failed("the server does not have it".into()),
        Ok(Some(Err(error))) | Err(error) => SourceError::Fetch(Arc::new(error)),
    };
    let why = match &failure {
        SourceError::Fetch(error) if matches!(**error, Error::Cancelled) => return Err(failure),
        SourceError::Fetch(error) => error.to_string(),
        SourceError::Reply { place, reason } => format!("cannot read {place}: {reason}"),
        _ => return Err(failure),
    };
    match kept {
        Some(kept) => Ok(kept.into_list(Origin::Offline(why))),
        None => Err(failure),
    }
}

impl Kept {
    fn read(file: &Path, uri: &ListUri) -> Option<Kept> {
        let contents = fs::read_to_string(file).ok()?;
        let asked_at = fs::metadata(file).ok()?.modified().ok()?;
        let (header, text) = contents.split_once('\n')?;
        let header: Header = serde_json::from_str(header).ok()?;
        let is_this = header.version == VERSION && header.place == uri.to_string();
        is_this.then(|| Kept {
            file: file.to_owned(),
            etag: header.etag,
            text: text.to_owned(),
            asked_at,
        })
    }

    /// Whether the server was asked at most this time ago. A clock that was ahead does not keep a
    /// list for longer.
    fn is_newer_than(&self, age: Duration) -> bool {
        self.asked_at.elapsed().is_ok_and(|own| own < age)
    }

    fn touch(&self) {
        let file = File::open(&self.file);
        // Without it, the next command asks the server again.
        let _: Option<()> = file
            .and_then(|file| file.set_modified(SystemTime::now()))
            .ok();
    }

    fn into_list(self, origin: Origin) -> PathList {
        PathList {
            text: self.text,
            fetched_at: seconds(self.asked_at),
            origin,
        }
    }
}

/// Keeps a text for the next command. A user without a place for it fetches the list again.
fn keep(file: &Path, uri: &ListUri, etag: Option<String>, text: &str) {
    let header = Header {
        version: VERSION,
        place: uri.to_string(),
        etag,
    };
    let header = serde_json::to_string(&header).ok();
    // Without it, the next command fetches the list again.
    let _: Option<()> =
        header.and_then(|header| replace(file, &[header.as_bytes(), b"\n", text.as_bytes()]));
}

/// Returns the file that keeps a list.
fn kept_file(directory: &Path, uri: &ListUri) -> PathBuf {
    let place = match uri {
        ListUri::File(path) => path.as_os_str().as_encoded_bytes().to_vec(),
        // Two users of a server may get two lists.
        ListUri::Url(url) => url.clone().into_bytes(),
    };
    let name = base16::encode(&sha256(&place));
    directory.join(format!("lists/{}", &name[..32]))
}

/// Decompresses a body, and checks that it is a list.
fn decoded(body: &[u8]) -> Result<String, String> {
    if body.len() > BODY_LEN_MAX {
        return Err(format!("it has more than {BODY_LEN_MAX} bytes"));
    }
    let compression = MAGIC.iter().find(|(magic, _)| body.starts_with(magic));
    let compression = compression.map_or(Compression::None, |(_, compression)| *compression);
    let mut text = Vec::new();
    let decoder = decoder(compression, body, WINDOW_LEN_MAX, XzChecks::Compare);
    let decoder = decoder.map_err(|error| error.to_string())?;
    if let Some(decoder) = decoder {
        let read = decoder.take(TEXT_LEN_MAX + 1).read_to_end(&mut text);
        read.map_err(|error| error.to_string())?;
    }
    if text.len() as u64 > TEXT_LEN_MAX {
        return Err(format!("it has more than {TEXT_LEN_MAX} bytes"));
    }
    let text = String::from_utf8(text).map_err(|_| NO_LIST.to_owned())?;
    let first = parse_list(&text).next();
    let is_list = first.is_some_and(|entry| entry.store_path().is_some());
    is_list.then_some(text).ok_or_else(|| NO_LIST.into())
}

const NO_LIST: &str = "it is not a list of store paths, one in each line";

/// The first bytes of the compressed files that a list may be.
const MAGIC: [(&[u8], Compression); 4] = [
    (b"\xfd7zXZ\0", Compression::Xz),
    (b"\x28\xb5\x2f\xfd", Compression::Zstd),
    (b"\x1f\x8b", Compression::Gzip),
    (b"BZh", Compression::Bzip2),
];

/// The version of the format of kept lists.
const VERSION: u32 = 1;

/// The largest list as it is sent, in bytes. Those of nixpkgs have about 3 MiB.
const BODY_LEN_MAX: usize = 64 * 1024 * 1024;

/// The largest list in bytes: a few million paths.
const TEXT_LEN_MAX: u64 = 256 * 1024 * 1024;

/// The largest window of a decoder in bytes, that of `xz -9`.
const WINDOW_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The longest time until a list is there, with all attempts.
const DEADLINE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write as _;

    use floe_transfer::codec::encoder;

    use super::*;

    fn text(name: &str) -> String {
        format!("/nix/store/{}-{name}\n", "0".repeat(32))
    }

    fn compressed(compression: Compression, text: &str) -> Vec<u8> {
        let mut body = Vec::new();
        let mut encoder = encoder(compression, None, &mut body).unwrap().unwrap();
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        body
    }

    #[test]
    fn lists_are_read_in_each_compression() {
        let list = text("jq-1.7");
        for compression in [
            Compression::None,
            Compression::Xz,
            Compression::Zstd,
            Compression::Gzip,
            Compression::Bzip2,
        ] {
            assert_eq!(decoded(&compressed(compression, &list)).unwrap(), list);
        }
        for other in ["", "\n\n", "<!DOCTYPE html>", "/etc/passwd\n", "{}"] {
            assert_eq!(decoded(other.as_bytes()).unwrap_err(), NO_LIST);
        }
        let body = compressed(Compression::Xz, &list.repeat(100));
        assert!(decoded(&body[..body.len() / 2]).is_err());
    }

    #[test]
    fn list_of_a_server_is_kept_until_it_changes() {
        let place = tempfile::tempdir().unwrap();
        let uri = ListUri::Url("http://h.example/store-paths.xz".into());
        let state = Cell::new(0);
        let fetch = |requests: Vec<DocumentRequest>| -> floe_cache::Fetched {
            let known = requests[0].known_etag.as_deref();
            let found = |etag: &str, name: &str| Document::Found {
                body: compressed(Compression::Xz, &text(name)),
                etag: Some(etag.to_owned()),
            };
            let reply = match (state.get(), known) {
                (0, None) => Ok(found("a", "one-1")),
                (1, Some("a")) => Ok(Document::Unchanged),
                (2, Some("a")) => Ok(found("b", "two-2")),
                (3, Some("b")) => Err(Error::fetch("http://h.example", "refused", true)),
                other => panic!("{other:?}"),
            };
            Ok(vec![reply])
        };
        let load = |ttl: u64| {
            let ttl = Duration::from_secs(ttl);
            load(&uri, (Some(place.path()), ttl), &fetch).unwrap()
        };
        assert_eq!(load(0).text, text("one-1"));
        state.set(9);
        let list = load(1000);
        assert_eq!(
            (list.text, list.origin),
            (text("one-1"), Origin::Remembered)
        );
        state.set(1);
        let list = load(0);
        assert_eq!((list.text, list.origin), (text("one-1"), Origin::Source));
        state.set(2);
        assert_eq!(load(0).text, text("two-2"));
        state.set(3);
        let list = load(0);
        assert_eq!(list.text, text("two-2"));
        assert!(matches!(list.origin, Origin::Offline(why) if why.contains("refused")));
    }

    #[test]
    fn compressed_file_is_decompressed_again_after_a_change() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("list.zst");
        let uri = ListUri::File(file.clone());
        let fetch = |_: Vec<DocumentRequest>| -> floe_cache::Fetched { Ok(Vec::new()) };
        let load = || {
            let list = load(&uri, (Some(place.path()), Duration::ZERO), &fetch);
            list.map(|list| list.text)
        };
        fs::write(&file, compressed(Compression::Zstd, &text("one-1"))).unwrap();
        assert_eq!(load().unwrap(), text("one-1"));
        let kept = kept_file(place.path(), &uri);
        let from_kept = fs::read_to_string(&kept).unwrap().replace("one-1", "two-2");
        fs::write(&kept, from_kept).unwrap();
        assert_eq!(load().unwrap(), text("two-2"), "the kept text is not read");
        fs::write(&file, compressed(Compression::Zstd, &text("three-3"))).unwrap();
        assert_eq!(load().unwrap(), text("three-3"));
        fs::remove_file(&file).unwrap();
        assert!(load().is_err());
    }
}
