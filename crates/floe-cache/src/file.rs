//! A binary cache in a directory, as a source.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use floe_format::HashPart;
use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_format::{CacheInfo, NarInfo, StoreDir, StorePath};
use floe_transfer::{
    Body, Buffering, CachePolicy, DEFAULT_PRIORITY, Error, FileCacheUri, NarInfoCallback,
    NarInfoResult, NarStream, Source,
};

/// A directory with `nix-cache-info`, narinfos and NARs.
#[derive(Debug)]
pub struct FileCache {
    directory: PathBuf,
    store_dir: StoreDir,
    priority: i32,
    is_trusted: bool,
}

impl FileCache {
    /// Opens an existing cache.
    pub fn open(location: &FileCacheUri) -> Result<FileCache, Error> {
        let directory = &location.directory;
        match read_cache_info(directory)? {
            Some(info) => Ok(FileCache {
                directory: directory.clone(),
                store_dir: info.store_dir,
                priority: location
                    .priority
                    .or(info.priority)
                    .unwrap_or(DEFAULT_PRIORITY),
                is_trusted: location.trusted,
            }),
            None => Err(Error::NotACache {
                url: format!("file://{}", directory.display()),
                reason: "no such file".into(),
            }),
        }
    }

    /// Reads the narinfo of a hash part.
    fn narinfo(&self, hash_part: &str) -> NarInfoResult {
        let path = self.directory.join(format!("{hash_part}.narinfo"));
        match read_bounded(&path)? {
            None => Ok(None),
            Some(text) => NarInfo::parse(&text, &self.store_dir)
                .map(|narinfo| Some(narinfo.into()))
                .map_err(|source| Error::NarInfo {
                    url: path.display().to_string(),
                    source: Box::new(source),
                }),
        }
    }

    /// Opens the NAR that a narinfo's URL names.
    fn open_nar_file(&self, url: &str) -> Result<Body, Error> {
        let relative = url.strip_prefix("file://").unwrap_or(url);
        let path = self.directory.join(relative);
        // A narinfo may name a NAR of its cache; it has no business anywhere else.
        let inside = path.starts_with(&self.directory)
            && !Path::new(relative)
                .components()
                .any(|part| part == Component::ParentDir);
        // Opening a pipe would wait for somebody to write to it.
        let is_other = || fs::metadata(&path).is_ok_and(|found| !found.is_file());
        let opened = if inside && is_other() {
            Err(io::Error::other("it is not a file"))
        } else if inside {
            File::open(&path)
        } else {
            Err(io::Error::other("the URL leads out of the cache"))
        };
        match opened {
            Ok(file) => Ok(Body::File { file, path }),
            Err(source) => Err(Error::File {
                action: "opening the NAR",
                path,
                source,
            }),
        }
    }

    /// Every path that has a narinfo.
    fn all_paths(&self) -> Result<Vec<StorePath>, Error> {
        let listing = |source| Error::File {
            action: "listing the cache",
            path: self.directory.clone(),
            source,
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(listing)? {
            let name = entry.map_err(listing)?.file_name();
            let part = name.to_str().and_then(|name| name.strip_suffix(".narinfo"));
            if let Some(part) = part.filter(|part| HashPart::parse(part).is_some()) {
                paths.extend(self.narinfo(part)?.map(|told| told.narinfo.info.path));
            }
        }
        paths.sort_unstable();
        Ok(paths)
    }
}

impl Source for FileCache {
    fn name(&self) -> String {
        format!("file://{}", self.directory.display())
    }

    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn query(&self, hash_part: &str, _: CachePolicy, reply: NarInfoCallback) {
        reply(self.narinfo(hash_part));
    }

    fn open_nar(&self, narinfo: &NarInfo, _: Buffering) -> Result<NarStream, Error> {
        self.open_nar_file(&narinfo.url).map(NarStream::Body)
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        self.all_paths().map(Some)
    }
}

/// Reads `nix-cache-info`; `None` if there is none.
pub(crate) fn read_cache_info(directory: &Path) -> Result<Option<CacheInfo>, Error> {
    let path = directory.join("nix-cache-info");
    match read_bounded(&path)? {
        None => Ok(None),
        Some(text) => CacheInfo::parse(&text)
            .map(Some)
            .map_err(|error| Error::NotACache {
                url: format!("file://{}", directory.display()),
                reason: error.to_string(),
            }),
    }
}

/// Reads a small file; `None` if there is none.
fn read_bounded(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let read = || {
        let mut text = Vec::new();
        // One byte more than allowed, so that the parser sees and names the excess.
        File::open(path)?
            .take(NARINFO_LEN_MAX as u64 + 1)
            .read_to_end(&mut text)?;
        Ok(text)
    };
    match read() {
        Ok(text) => Ok(Some(text)),
        Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File {
            action: "reading",
            path: path.to_path_buf(),
            source,
        }),
    }
}
